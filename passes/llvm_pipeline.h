// Runs LLVM pass pipelines over modules of kernels. The graph passes have already folded constants, eliminated common
// subexpressions and scheduled, so these pipelines are short.
#pragma once

#include <llvm/IR/Module.h>

#include "ir/error.h"
#include "passes/llvm_passes.h"

namespace srjit {

/// For modules of host kernels: eliminates common subexpressions, which only addresses have.
void optimizeHostModule(llvm::Module& module);

/// For a module that holds one function of libdevice: simplifies it and keeps local arrays in registers. Done
/// once per function and process, before it is linked into any kernel. Errors: kInvalid for pipelines that LLVM does
/// not know.
Status optimizeLibraryModule(llvm::Module& module, const LlvmPasses& passes = {});

/// For modules of device kernels into which library functions have been linked: inlines what is marked alwaysinline,
/// drops what is then unused, and promotes the interpreter's registers. Errors: as above.
Status optimizeDeviceModule(llvm::Module& module, const LlvmPasses& passes = {});

/// Replaces every local array of at most 16 numbers by as many scalars; an access with an index known only at run time
/// becomes a chain of selects. libdevice's argument reduction for large angles keeps such an array, which would
/// otherwise give every kernel with a sine a stack frame. Returns the number of arrays replaced.
unsigned scalarizeArrays(llvm::Function& function);

}  // namespace srjit
