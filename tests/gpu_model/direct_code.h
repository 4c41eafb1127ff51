// Cubins with the kernel of the direct tier, run on the model of a warp: decodes the actual machine code, stalls and
// barriers included.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compiler/sass/instruction.h"
#include "tests/gpu_model/kernels.h"

namespace srjit {

/// Changes instructions before they run, as a model of a device that executes them differently. The second argument is
/// the architecture.
using AlterCode = std::function<void(std::vector<sass::Instruction>&, unsigned)>;

/// Reads a cubin that compiler/sass/cubin.h wrote; nullopt if `image` is no ELF file, or one that cannot be run.
/// Precondition: `image` has as many bytes as its ELF header and section headers say.
std::optional<ModelImage> readDirectModel(const void* image, const AlterCode& alter);

}  // namespace srjit
