#include "compiler/nvptx/plain_sums.h"

#include <array>
#include <bit>
#include <utility>

namespace srjit {

// After Strip::sumLanes() lane l has item l: those of a row group are as many items apart as there are row groups.
PlainSums::PlainSums(Lowering& lowering, const Strip& strip, const LossPointers& pointers)
    : lowering_(lowering), b_(lowering.builder()), strip_(strip), all_exist_(strip.allExist()) {
  const unsigned groups = strip.rowGroups();
  llvm::Value* const own = b_.CreateAnd(strip.lane(), groups - 1);
  llvm::Value* const row_group = strip.numberOfRowGroup(own);
  llvm::Value* const row_groups = strip.rowGroupCount();
  row_group_exists_ = b_.CreateICmpULT(row_group, row_groups);
  row_groups_ = b_.CreateTrunc(row_groups, b_.getInt32Ty());
  to_ = b_.CreateInBoundsGEP(lowering.elementType(), pointers.sums, row_group);
  output_ = b_.CreateLShr(strip.lane(), b_.getInt32(static_cast<unsigned>(std::countr_zero(groups))));
}

Rows PlainSums::sumRows(const Rows& values) const {
  const auto sum = [&](bool all_exist) {
    Rows sums;
    for (unsigned first = 0; first < values.size(); first += kLaneRows) {
      std::array<llvm::Value*, kLaneRows> x{};
      for (unsigned i = 0; i < kLaneRows; ++i) {
        x[i] = values[first + i];
        if (!all_exist) x[i] = b_.CreateSelect(strip_.exists(first + i), x[i], lowering_.literal(0));
      }
      sums.push_back(b_.CreateFAdd(b_.CreateFAdd(x[0], x[1]), b_.CreateFAdd(x[2], x[3])));
    }
    return sums;
  };
  llvm::Function* const function = b_.GetInsertBlock()->getParent();
  const auto newBlock = [&](const char* name) { return llvm::BasicBlock::Create(b_.getContext(), name, function); };
  llvm::BasicBlock *const all = newBlock("all"), *const some = newBlock("some"), *const merged = newBlock("merged");
  b_.CreateCondBr(all_exist_, all, some);
  b_.SetInsertPoint(all);
  const Rows of_all = sum(true);
  b_.CreateBr(merged);
  b_.SetInsertPoint(some);
  const Rows of_some = sum(false);
  b_.CreateBr(merged);
  b_.SetInsertPoint(merged);
  Rows sums;
  for (std::size_t i = 0; i < of_all.size(); ++i) {
    llvm::PHINode* const either = b_.CreatePHI(lowering_.type(), 2);
    either->addIncoming(of_all[i], all);
    either->addIncoming(of_some[i], some);
    sums.push_back(either);
  }
  return sums;
}

void PlainSums::store(llvm::Value* output, std::vector<Rows> sums) const {
  const unsigned groups = strip_.rowGroups();
  const auto count = static_cast<unsigned>(sums.size());
  std::vector<llvm::Value*> items;
  for (const Rows& each : sums) items.insert(items.end(), each.begin(), each.end());
  items.resize(std::size_t{std::bit_ceil(count)} * groups, lowering_.literal(0));
  llvm::Value* const total = strip_.sumLanes(std::move(items));
  llvm::Function* const function = b_.GetInsertBlock()->getParent();
  auto* const write = llvm::BasicBlock::Create(b_.getContext(), "write", function);
  auto* const next = llvm::BasicBlock::Create(b_.getContext(), "next", function);
  llvm::Value* const has_one = b_.CreateICmpULT(strip_.lane(), b_.getInt32(count * groups));
  b_.CreateCondBr(b_.CreateAnd(row_group_exists_, has_one), write, next);
  b_.SetInsertPoint(write);
  llvm::Value* const index = wideProduct(b_, b_.CreateAdd(output, output_), row_groups_);
  b_.CreateStore(total, b_.CreateInBoundsGEP(lowering_.elementType(), to_, index));
  b_.CreateBr(next);
  b_.SetInsertPoint(next);
}

}  // namespace srjit
