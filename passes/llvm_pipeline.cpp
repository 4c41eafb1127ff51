#include "passes/llvm_pipeline.h"

#include <vector>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
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

/// One access to an array: a load or store, and the index of its element.
struct Access {
  llvm::Instruction* instruction;
  llvm::Value* index;
};

/// Collects all accesses to `array`, and the instructions that are dead once it is scalar; false if it has other uses.
bool collectAccesses(llvm::AllocaInst& array, std::vector<Access>& accesses, std::vector<llvm::Instruction*>& dead) {
  llvm::Type* const element = array.getAllocatedType()->getArrayElementType();
  llvm::Value* const zero = llvm::ConstantInt::get(llvm::Type::getInt64Ty(array.getContext()), 0);
  const auto collect = [&](llvm::Value& pointer, llvm::Value* index) {
    for (llvm::User* const user : pointer.users()) {
      if (auto* const load = llvm::dyn_cast<llvm::LoadInst>(user); load != nullptr && load->getType() == element) {
        accesses.push_back({load, index});
      } else if (auto* const store = llvm::dyn_cast<llvm::StoreInst>(user);
                 store != nullptr && store->getPointerOperand() == &pointer &&
                 store->getValueOperand()->getType() == element) {
        accesses.push_back({store, index});
      } else if (!llvm::isa<llvm::GetElementPtrInst>(user) && !llvm::isa<llvm::LifetimeIntrinsic>(user)) {
        return false;
      }
    }
    return true;
  };
  if (!collect(array, zero)) return false;
  for (llvm::User* const user : array.users()) {
    if (auto* const lifetime = llvm::dyn_cast<llvm::LifetimeIntrinsic>(user)) {
      dead.push_back(lifetime);
    } else if (auto* const pointer = llvm::dyn_cast<llvm::GetElementPtrInst>(user)) {
      const bool of_array =
          pointer->getSourceElementType() == array.getAllocatedType() && pointer->getNumIndices() == 2;
      const bool of_element = pointer->getSourceElementType() == element && pointer->getNumIndices() == 1;
      if (!of_array && !of_element) return false;
      for (llvm::User* const nested : pointer->users()) {
        if (llvm::isa<llvm::GetElementPtrInst>(nested)) return false;
      }
      if (!collect(*pointer, pointer->getOperand(pointer->getNumOperands() - 1))) return false;
      dead.push_back(pointer);
    }
  }
  return true;
}

void scalarizeAccess(const Access& access, llvm::ArrayRef<llvm::AllocaInst*> scalars) {
  llvm::IRBuilder<> builder(access.instruction);
  const auto isIndex = [&](std::size_t i) {
    return builder.CreateICmpEQ(access.index, llvm::ConstantInt::get(access.index->getType(), i));
  };
  const auto load = [&](std::size_t i) { return builder.CreateLoad(scalars[i]->getAllocatedType(), scalars[i]); };
  if (auto* const store = llvm::dyn_cast<llvm::StoreInst>(access.instruction)) {
    for (std::size_t i = 0; i < scalars.size(); ++i) {
      builder.CreateStore(builder.CreateSelect(isIndex(i), store->getValueOperand(), load(i)), scalars[i]);
    }
  } else {
    llvm::Value* value = load(0);
    for (std::size_t i = 1; i < scalars.size(); ++i) value = builder.CreateSelect(isIndex(i), load(i), value);
    access.instruction->replaceAllUsesWith(value);
  }
  access.instruction->eraseFromParent();
}

}  // namespace

unsigned scalarizeArrays(llvm::Function& function) {
  constexpr std::uint64_t kMaxElements = 16;
  std::vector<llvm::AllocaInst*> arrays;
  for (llvm::BasicBlock& block : function) {
    for (llvm::Instruction& instruction : block) {
      auto* const alloca = llvm::dyn_cast<llvm::AllocaInst>(&instruction);
      auto* const type = alloca ? llvm::dyn_cast<llvm::ArrayType>(alloca->getAllocatedType()) : nullptr;
      if (type != nullptr && type->getNumElements() <= kMaxElements && !type->getElementType()->isAggregateType()) {
        arrays.push_back(alloca);
      }
    }
  }
  unsigned replaced = 0;
  for (llvm::AllocaInst* const array : arrays) {
    std::vector<Access> accesses;
    std::vector<llvm::Instruction*> dead;
    if (!collectAccesses(*array, accesses, dead)) continue;
    llvm::IRBuilder<> builder(array);
    std::vector<llvm::AllocaInst*> scalars(array->getAllocatedType()->getArrayNumElements());
    for (auto& scalar : scalars) scalar = builder.CreateAlloca(array->getAllocatedType()->getArrayElementType());
    for (const Access& access : accesses) scalarizeAccess(access, scalars);
    for (llvm::Instruction* const instruction : dead) instruction->eraseFromParent();
    array->eraseFromParent();
    ++replaced;
  }
  return replaced;
}

void optimizeHostModule(llvm::Module& module) { static_cast<void>(runPasses(module, "function(early-cse)")); }

Status optimizeLibraryModule(llvm::Module& module, const LlvmPasses& passes) {
  if (Status optimized = runPasses(module, passes.library); !optimized) return optimized;
  for (llvm::Function& function : module) scalarizeArrays(function);
  return runPasses(module, passes.library_loops);
}

Status optimizeDeviceModule(llvm::Module& module, const LlvmPasses& passes) {
  return runPasses(module, passes.kernels);
}

}  // namespace srjit
