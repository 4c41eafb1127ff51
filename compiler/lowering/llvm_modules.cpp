#include "compiler/lowering/llvm_modules.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/BinaryFormat/Dwarf.h>
#include <llvm/IR/AssemblyAnnotationWriter.h>
#include <llvm/IR/DebugInfo.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/FormattedStream.h>
#include <llvm/Support/raw_ostream.h>

namespace srjit {
namespace {

/// Writes the places of instructions behind them.
class PlaceWriter final : public llvm::AssemblyAnnotationWriter {
 public:
  explicit PlaceWriter(llvm::Module& module) {
    for (llvm::Function& function : module) {
      for (const llvm::Instruction& instruction : llvm::instructions(function)) {
        const llvm::DebugLoc& location = instruction.getDebugLoc();
        if (location && location.getLine() != 0) {
          places_.try_emplace(&instruction, SourcePlace{location.getLine(), location.getCol()});
        }
      }
    }
  }

  void printInfoComment(const llvm::Value& value, llvm::formatted_raw_ostream& out) override {
    if (const auto found = places_.find(&value); found != places_.end()) {
      out << " ; at " << found->second.line << ':' << found->second.column;
    }
  }

 private:
  llvm::DenseMap<const llvm::Value*, SourcePlace> places_;
};

}  // namespace

NodeLocations::NodeLocations(llvm::IRBuilder<>& builder, llvm::Function& function, const SourceMap* map)
    : builder_(builder), map_(map) {
  if (map == nullptr) return;
  debug_.emplace(*function.getParent());
  llvm::DIFile* const file = debug_->createFile(map->file, map->directory);
  // Only lines of places: neither sections nor another kind of code.
  debug_->createCompileUnit(llvm::dwarf::DW_LANG_C, file, "sr-jit", /*isOptimized=*/true, "", 0, "",
                            llvm::DICompileUnit::DebugDirectivesOnly);
  llvm::DISubroutineType* const type = debug_->createSubroutineType(debug_->getOrCreateTypeArray({}));
  // Line 0: what the code generator adds at the beginning belongs to no node.
  subprogram_ = debug_->createFunction(file, function.getName(), function.getName(), file, 0, type, 0,
                                       llvm::DINode::FlagZero, llvm::DISubprogram::SPFlagDefinition);
  function.setSubprogram(subprogram_);
  clear();
}

NodeLocations::~NodeLocations() {
  if (map_ == nullptr) return;
  builder_.SetCurrentDebugLocation({});
  debug_->finalize();
}

void NodeLocations::set(NodeId id) {
  if (map_ == nullptr) return;
  const SourcePlace place = id < map_->places.size() ? map_->places[id] : SourcePlace{};
  if (place.line == 0) return clear();
  builder_.SetCurrentDebugLocation(llvm::DILocation::get(builder_.getContext(), place.line, place.column, subprogram_));
}

void NodeLocations::clear() {
  if (map_ == nullptr) return;
  // A call needs a location in a function that has a source.
  builder_.SetCurrentDebugLocation(llvm::DILocation::get(builder_.getContext(), 0, 0, subprogram_));
}

std::string textWithPlaces(llvm::Module& module) {
  PlaceWriter writer(module);
  llvm::StripDebugInfo(module);
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, &writer);
  return text;
}

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

// What only the kernels' own code needs is left.
void optimizeBitcode(llvm::Module& module, const llvm::TargetIRAnalysis& costs) {
  runPasses(module, "globaldce,default<O2>", costs);
}

}  // namespace srjit
