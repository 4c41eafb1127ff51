// An interpreter of PTX text on the host, one instruction at a time, for the subset that benchmarks and LLVM's kernels
// of rows have (compiler/nvptx/kernels.h; with a loss in f32, no skipped rows): arithmetic of
// 32 and 64 bits, branches, local and shared memory, shuffles and barriers that all threads of a block reach together,
// and atomic additions. Approximate instructions are the host's functions; nothing is flushed to zero. Source: PTX
// ISA 9.0.
#pragma once

#include <optional>

#include "tests/gpu_model/kernels.h"

namespace srjit {

/// Models of the kernels of a PTX text; nullopt if the text is no PTX. Executing an instruction without a model, or a
/// barrier that not all threads of the block reach, throws ModelFault.
std::optional<ModelImage> readPtx(const char* text);

}  // namespace srjit
