// Runs LLVM pass pipelines over modules of kernels. The graph passes have already folded constants, eliminated common
// subexpressions and scheduled, so these pipelines are short.
#pragma once

#include <llvm/IR/Module.h>

#include "ir/error.h"
#include "passes/llvm/passes.h"

namespace srjit {

/// For modules of host kernels: eliminates common subexpressions, which only addresses have.
void optimizeHostModule(llvm::Module& module);

/// For modules of device kernels: eliminates common subexpressions, and promotes the interpreter's registers. Errors:
/// kInvalid for pipelines that LLVM does not know.
Status optimizeDeviceModule(llvm::Module& module, const LlvmPasses& passes = {});

}  // namespace srjit
