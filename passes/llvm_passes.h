// The LLVM pass pipelines for kernels of a GPU.
#pragma once

#include <string>

namespace srjit {

/// Pipelines in the syntax of llvm::PassBuilder::parsePassPipeline(). Other pipelines serve to measure the effect of a
/// pass (tools/bench/llvm_passes.cpp); kernels made with them are in no cache.
struct LlvmPasses {
  /// Once per function of libdevice and process.
  std::string library = "always-inline,function(simplifycfg,sroa,early-cse),globaldce";
  /// The same, after local arrays have become scalars. The loop over the words of 2/pi has six iterations; unrolled,
  /// its stores have constant indices and their selects fold.
  std::string library_loops =
      "function(sroa,early-cse,loop-simplify,lcssa,loop(loop-rotate),loop-unroll<O3;full-unroll-max=8>,sroa,"
      "instcombine<no-verify-fixpoint>,simplifycfg<no-sink-common-insts;no-hoist-common-insts>)";
  /// For a module of kernels into which the functions were linked.
  std::string kernels =
      "always-inline,function(sroa,early-cse,simplifycfg<no-sink-common-insts;no-hoist-common-insts>),globaldce";
  unsigned code_generation = 2;  ///< llvm::CodeGenOptLevel, 0 to 3
};

}  // namespace srjit
