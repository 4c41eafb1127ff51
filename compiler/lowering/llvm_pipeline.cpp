#include "compiler/lowering/llvm_pipeline.h"

#include <llvm/Passes/PassBuilder.h>

namespace srjit {
namespace {

Status runPasses(llvm::Module& module, llvm::StringRef pipeline, const llvm::TargetIRAnalysis& costs = {}) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  // Before those of the builder, which has no target.
  functions.registerPass([&] { return costs; });
  llvm::PassBuilder builder;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graphs, modules);
  llvm::ModulePassManager passes;
  if (llvm::Error unknown = builder.parsePassPipeline(passes, pipeline)) {
    return Error{Errc::kInvalid, "LLVM passes: " + llvm::toString(std::move(unknown)), {}};
  }
  passes.run(module, modules);
  return okStatus();
}

}  // namespace

void optimizeHostModule(llvm::Module& module) { static_cast<void>(runPasses(module, "function(early-cse)")); }

Status optimizeDeviceModule(llvm::Module& module, const llvm::TargetIRAnalysis& costs, const LlvmPasses& passes) {
  return runPasses(module, passes.kernels, passes.knows_costs ? costs : llvm::TargetIRAnalysis());
}

}  // namespace srjit
