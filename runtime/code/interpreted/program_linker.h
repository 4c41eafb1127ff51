// Programs that several tasks have encoded, as those of launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/code/interpreted/device_encoding.h"
#include "runtime/code/interpreted/encoded_generation.h"
#include "runtime/code/parts.h"

namespace srjit {

/// Programs are encoded before it is known which operators and columns all of them need. Until then their tokens have
/// the handlers of the family of all operators; columns are variables, and slots are numbered from here on. Where there
/// are more variables, those of a section are numbered. An interpreter stages far fewer columns.
inline constexpr std::uint32_t kFirstSlot = 1U << 17;

/// Blocks have slots for their neediest program, and with many slots a multiprocessor holds few of them. So programs
/// that need more than these are launched apart, where at least half need no more. Measured for normal equations of
/// 10,000 to 250,000 expressions on an H100: ten of f32 are better than eight or no bound
/// (docs/history/experiments.md).
constexpr std::uint32_t fewSlots(Precision precision) {
  return static_cast<std::uint32_t>(10 * sizeof(float)) / static_cast<std::uint32_t>(bytesOf(precision));
}

/// Neighbours whose programs are staged with the same columns.
struct SectionDraft {
  std::size_t first, last;                    ///< of the chosen
  std::vector<std::uint32_t> numbers = {};    ///< by variable; empty: the identity
  std::vector<std::uint32_t> variables = {};  ///< by number, unless that is the identity
  std::vector<std::uint32_t> columns = {};    ///< staged columns
  std::vector<std::uint32_t> staged_as = {};  ///< by number
  std::vector<bool> uses = {};                ///< by number
};

/// Puts the programs of `chunks`, which are in the order of `sections`, behind one another, with the handlers of the
/// family in code.interpreter, and copies them to the device; adds their parameters and failures to `code`. Programs of
/// `on_device`, unless that is null, come before those of the first section, and are staged with its columns. Programs
/// of a section that need many slots may be launched apart. Without programs there is no code.interpreter afterwards.
/// In parallel on the calling thread's arena. Throws CudaFailure, OutOfMemory, std::bad_alloc, and std::length_error
/// for more than 2^32 tokens.
void linkPrograms(const CodeRequest& request, std::span<const SectionDraft> sections,
                  std::span<const EncodedChunk> chunks, DeviceEncoding* on_device, DeviceCode& code);

}  // namespace srjit
