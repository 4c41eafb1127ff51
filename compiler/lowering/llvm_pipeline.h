// Runs LLVM pass pipelines over modules of kernels. The graph passes have already folded constants, eliminated common
// subexpressions and scheduled, so these pipelines are short.
#pragma once

#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/IR/Module.h>

namespace srjit {

/// Eliminates common subexpressions, which only addresses have, in modules of host kernels.
void optimizeHostModule(llvm::Module& module);
/// The same in modules of device kernels; and promotes the interpreter's registers.
void optimizeDeviceModule(llvm::Module& module);
/// For modules that a C++ compiler made, as small as possible. `costs` are those of the target's instructions.
void optimizeFrontEnd(llvm::Module& module, const llvm::TargetIRAnalysis& costs);

}  // namespace srjit
