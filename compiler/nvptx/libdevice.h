// NVIDIA's libdevice: parsed once per process, function by function as kernels need them.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include "ir/error.h"
#include "passes/llvm_passes.h"

namespace srjit {

/// Gives every declared and used __nv_* function of `module` its body, marked alwaysinline. A function is extracted
/// from libdevice.10.bc, specialised and optimised at its first use in this process and kept as bitcode, so later
/// modules parse only what they call. Errors: kMachine if there is no libdevice (the message says which function needs
/// it and where it was looked for). Thread-safe for different contexts.
Status linkLibdevice(llvm::Module& module, llvm::TargetMachine& target, const LlvmPasses& passes = {});

}  // namespace srjit
