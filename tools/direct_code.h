// The direct tier's machine code, for the commands that show it.
#pragma once

#include "compiler/kernels/assembler.h"
#include "tools/kernel_options.h"

namespace srjit {

/// One image with one kernel of all good expressions, which are one graph (KernelCode::kOneGraph). Those that the tier
/// has no code for become errors of their lines (kUnsupported, with the reason and what to do) and are reported; the
/// image is empty if no other is left. Throws ErrorException of kUnsupported for an architecture that the tier has not.
Cubin directCubin(KernelInput& input, const KernelOptions& options);

}  // namespace srjit
