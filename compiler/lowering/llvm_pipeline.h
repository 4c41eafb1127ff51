// Runs LLVM pass pipelines over modules of kernels. The graph passes have already folded constants, eliminated common
// subexpressions and scheduled, so these pipelines are short.
#pragma once

#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/IR/Module.h>

#include "compiler/lowering/llvm_passes.h"
#include "ir/error.h"

namespace srjit {

/// For modules of host kernels: eliminates common subexpressions, which only addresses have.
void optimizeHostModule(llvm::Module& module);

/// For modules of device kernels: eliminates common subexpressions, and promotes the interpreter's registers. `costs`
/// are the target's. Errors: kInvalid for pipelines that LLVM does not know.
Status optimizeDeviceModule(llvm::Module& module, const llvm::TargetIRAnalysis& costs, const LlvmPasses& passes = {});

}  // namespace srjit
