#include "compiler/nvptx/emit_with_places.h"

#include <memory>

#include <llvm/ADT/DenseMap.h>
#include <llvm/CodeGen/MachineFunctionPass.h>
#include <llvm/CodeGen/MachineModuleInfo.h>
#include <llvm/CodeGen/Passes.h>
#include <llvm/CodeGen/TargetPassConfig.h>

namespace srjit {
namespace {

/// The place of an instruction. Memory of one that was deleted is used again, so the pointer does not identify an
/// instruction.
struct KeptPlace {
  unsigned opcode;
  llvm::DebugLoc place;
};

/// Those of the instructions of a function.
using KeptPlaces = llvm::DenseMap<const llvm::MachineInstr*, KeptPlace>;

/// Notes the places of all instructions, or gives them back to those that are still there.
class PlaceKeeper final : public llvm::MachineFunctionPass {
 public:
  enum class Step { kNote, kRestore };
  static char ID;

  PlaceKeeper(Step step, std::shared_ptr<KeptPlaces> places)
      : MachineFunctionPass(ID), step_(step), places_(std::move(places)) {}

  llvm::StringRef getPassName() const override { return "places of nodes"; }
  // No analysis depends on places.
  void getAnalysisUsage(llvm::AnalysisUsage& usage) const override {
    usage.setPreservesAll();
    MachineFunctionPass::getAnalysisUsage(usage);
  }
  bool runOnMachineFunction(llvm::MachineFunction& function) override {
    if (step_ == Step::kNote) places_->clear();
    for (llvm::MachineBasicBlock& block : function) {
      for (llvm::MachineInstr& instruction : block) {
        if (step_ == Step::kNote) {
          places_->try_emplace(&instruction, KeptPlace{instruction.getOpcode(), instruction.getDebugLoc()});
        } else if (const auto found = places_->find(&instruction);
                   found != places_->end() && found->second.opcode == instruction.getOpcode()) {
          instruction.setDebugLoc(found->second.place);
        }
      }
    }
    if (step_ == Step::kRestore) places_->clear();
    return false;
  }

 private:
  Step step_;
  std::shared_ptr<KeptPlaces> places_;
};

char PlaceKeeper::ID = 0;

}  // namespace

bool addPassesToEmitWithPlaces(llvm::TargetMachine& target, llvm::legacy::PassManager& passes,
                               llvm::raw_pwrite_stream& out) {
  auto& machine = static_cast<llvm::LLVMTargetMachine&>(target);
  auto* const functions = new llvm::MachineModuleInfoWrapperPass(&machine);  // the pass manager owns it, as all passes
  llvm::TargetPassConfig* const config = machine.createPassConfig(passes);
  const auto places = std::make_shared<KeptPlaces>();
  config->insertPass(&llvm::MachineCSEID, new PlaceKeeper(PlaceKeeper::Step::kNote, places));
  config->insertPass(&llvm::MachineSinkingID, new PlaceKeeper(PlaceKeeper::Step::kRestore, places));
  passes.add(config);
  passes.add(functions);
  if (config->addISelPasses()) return true;
  config->addMachinePasses();
  config->setInitialized();
  if (machine.addAsmPrinter(passes, out, nullptr, llvm::CodeGenFileType::AssemblyFile,
                            functions->getMMI().getContext())) {
    return true;
  }
  passes.add(llvm::createFreeMachineFunctionPass());
  return false;
}

}  // namespace srjit
