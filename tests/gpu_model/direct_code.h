// Cubins with the kernel of the direct tier, run on the model of a warp: machine code as it was written, bits and
// delays included.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compiler/sass/instruction.h"
#include "tests/gpu_model/kernels.h"

namespace srjit {

/// Changes instructions before they run, as a device would that understands them otherwise. Gets the architecture.
using AlterCode = std::function<void(std::vector<sass::Instruction>&, unsigned)>;

/// Reads a cubin that compiler/sass/cubin_writer.h wrote; nothing if `image` is no ELF file, or one that cannot be run.
/// Such a file says how long it is, so `image` must hold as much as it says.
std::optional<ModelImage> readDirectModel(const void* image, const AlterCode& alter);

}  // namespace srjit
