// Programs that several tasks have encoded, as those of launches.
#pragma once

#include <span>

#include "runtime/code/interpreted/device_encoding.h"
#include "runtime/code/interpreted/encoded_generation.h"
#include "runtime/code/interpreted/sections.h"
#include "runtime/code/parts.h"

namespace srjit {

/// Puts the programs of `chunks`, which are in the order of `sections`, behind one another, with the handlers of the
/// family in code.interpreter, and copies them to the device; adds their parameters and failures to `code`. Programs of
/// `on_device`, unless that is null, come before those of the first section, and are staged with its columns. Programs
/// of a section that need many slots may be launched apart. Without programs there is no code.interpreter afterwards.
/// In parallel on the calling thread's arena. Throws CudaFailure, OutOfMemory, std::bad_alloc, and std::length_error
/// for more than 2^32 tokens.
void linkPrograms(const CodeRequest& request, std::span<const SectionDraft> sections,
                  std::span<const EncodedChunk> chunks, DeviceEncoding* on_device, DeviceCode& code);

}  // namespace srjit
