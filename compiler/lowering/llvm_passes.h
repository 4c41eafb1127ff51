// The LLVM pass pipelines for kernels of a GPU.
#pragma once

#include <string>

namespace srjit {

/// Pipelines in the syntax of llvm::PassBuilder::parsePassPipeline(). Other pipelines serve to measure the effect of a
/// pass (tools/bench/llvm_passes.cpp); kernels made with them are in no cache.
struct LlvmPasses {
  std::string kernels = "function(sroa,early-cse,simplifycfg<no-sink-common-insts;no-hoist-common-insts>),globaldce";
  /// Whether passes know the costs of the target's instructions: for code that a C++ compiler made.
  bool knows_costs = false;
  unsigned code_generation = 2;  ///< llvm::CodeGenOptLevel, 0 to 3
};

}  // namespace srjit
