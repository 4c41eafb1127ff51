#include "passes/llvm/pipeline.h"

#include <llvm/Passes/PassBuilder.h>

namespace srjit {
namespace {

Status runPasses(llvm::Module& module, llvm::StringRef pipeline) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
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

Status optimizeDeviceModule(llvm::Module& module, const LlvmPasses& passes) {
  return runPasses(module, passes.kernels);
}

}  // namespace srjit
