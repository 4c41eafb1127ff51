// Kernels of PTX text run on the host, an instruction at a time, for what the generated code of benchmarks contains:
// arithmetic of 32 and 64 bits, branches, local and shared memory, shuffles and barriers that all threads of a block
// reach together, and atomic additions. Approximate instructions are the host's functions; nothing is flushed to zero.
// Source: PTX ISA 9.0.
#pragma once

#include <optional>

#include "tests/gpu_model/kernels.h"

namespace srjit {

/// Models of the kernels of a PTX text; nothing if the text is none. An instruction without a model, and threads that
/// part at a barrier, are a ModelFault when they are met.
std::optional<ModelImage> readPtx(const char* text);

}  // namespace srjit
