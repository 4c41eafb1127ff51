#include "compiler/lowering/llvm_pipeline.h"

#include <llvm/Passes/PassBuilder.h>

namespace srjit {
namespace {

// The pipeline is in the syntax of llvm::PassBuilder::parsePassPipeline().
void runPasses(llvm::Module& module, llvm::StringRef pipeline, const llvm::TargetIRAnalysis& costs = {}) {
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
  llvm::cantFail(builder.parsePassPipeline(passes, pipeline));
  passes.run(module, modules);
}

}  // namespace

void optimizeHostModule(llvm::Module& module) { runPasses(module, "function(early-cse)"); }

void optimizeDeviceModule(llvm::Module& module) {
  runPasses(module, "function(sroa,early-cse,simplifycfg<no-sink-common-insts;no-hoist-common-insts>),globaldce");
}

// What only the kernels' own code needs is left. Size decides their speed: instructions are fetched by warps that go
// different ways (docs/history/experiments.md).
void optimizeFrontEnd(llvm::Module& module, const llvm::TargetIRAnalysis& costs) {
  runPasses(module, "globaldce,default<Oz>", costs);
}

}  // namespace srjit
