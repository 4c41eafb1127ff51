// Which of LLVM's passes kernels of a GPU go through.
#pragma once

#include <string>

namespace srjit {

/// Pipelines as llvm::PassBuilder::parsePassPipeline() spells them. Others than these are for measuring what a pass
/// buys (tools/bench/llvm_passes.cpp); kernels made with them are in no cache.
struct LlvmPasses {
  /// Once per function of libdevice and process.
  std::string library = "always-inline,function(simplifycfg,sroa,early-cse),globaldce";
  /// The same, after local arrays have become scalars. The loop over the words of 2/pi has six turns; unrolled, its
  /// stores have constant indices and their selects fold.
  std::string library_loops =
      "function(sroa,early-cse,loop-simplify,lcssa,loop(loop-rotate),loop-unroll<O3;full-unroll-max=8>,sroa,"
      "instcombine<no-verify-fixpoint>,simplifycfg<no-sink-common-insts;no-hoist-common-insts>)";
  /// For a module of kernels into which the functions were linked.
  std::string kernels =
      "always-inline,function(sroa,early-cse,simplifycfg<no-sink-common-insts;no-hoist-common-insts>),globaldce";
  unsigned code_generation = 2;  ///< llvm::CodeGenOptLevel, 0 to 3
};

}  // namespace srjit
