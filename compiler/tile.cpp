#include "compiler/tile.h"

#include <limits>

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

namespace srjit {
namespace {

constexpr unsigned kWarpLanes = 32;
constexpr unsigned kGroupSize = 4;  // adjacent rows of one thread
static_assert(kWarpLanes * kGroupSize == kGroupRows, "one warp's group is one group of the reduction tree");

// A 16-byte access holds four floats or two doubles.
unsigned elementsPerAccess(const Lowering& lowering) {
  return 16 / static_cast<unsigned>(bytesOf(lowering.precision()));
}

}  // namespace

llvm::Value* wideProduct(llvm::IRBuilder<>& builder, llvm::Value* x, llvm::Value* y) {
  return builder.CreateMul(builder.CreateZExt(x, builder.getInt64Ty()), builder.CreateZExt(y, builder.getInt64Ty()));
}

Tile::Tile(Lowering& lowering, const DeviceOptions& options, llvm::Value* row_count)
    : lowering_(lowering),
      b_(lowering.builder()),
      rows_per_thread_(options.rows_per_thread),
      row_count_(row_count),
      thread_(b_.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, {}, {})) {
  llvm::Value* const block = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, {}, {});
  base_ = wideProduct(b_, block, b_.getInt32(kBlockThreads * rows_per_thread_));
  llvm::Value* const own = b_.CreateAdd(base_, b_.CreateZExt(b_.CreateShl(thread_, 2), b_.getInt64Ty()));
  for (unsigned group = 0; group < groups(); ++group) {
    group_rows_.push_back(b_.CreateAdd(own, b_.getInt64(std::uint64_t{group} * kBlockThreads * kGroupSize)));
    in_range_.push_back(b_.CreateICmpULT(group_rows_.back(), row_count_));
  }
}

Rows Tile::load(llvm::Value* column) const {
  const unsigned width = elementsPerAccess(lowering_);
  auto* const vector = llvm::FixedVectorType::get(lowering_.elementType(), width);
  Rows rows;
  for (unsigned group = 0; group < groups(); ++group) {
    llvm::Value* const row = b_.CreateSelect(in_range_[group], groupRow(group), b_.getInt64(0));
    for (unsigned part = 0; part < kGroupSize; part += width) {
      llvm::Value* const pointer =
          b_.CreateInBoundsGEP(lowering_.elementType(), column, b_.CreateAdd(row, b_.getInt64(part)));
      llvm::LoadInst* const load = b_.CreateAlignedLoad(vector, pointer, llvm::Align(16));
      load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(b_.getContext(), {}));
      for (unsigned i = 0; i < width; ++i) rows.push_back(b_.CreateExtractElement(load, i));
    }
  }
  return rows;
}

void Tile::store(llvm::Value* column, const Rows& rows) const {
  const unsigned width = elementsPerAccess(lowering_);
  auto* const vector = llvm::FixedVectorType::get(lowering_.elementType(), width);
  llvm::Function* const function = b_.GetInsertBlock()->getParent();
  for (unsigned group = 0; group < groups(); ++group) {
    auto* const write = llvm::BasicBlock::Create(b_.getContext(), "write", function);
    auto* const next = llvm::BasicBlock::Create(b_.getContext(), "next", function);
    b_.CreateCondBr(in_range_[group], write, next);
    b_.SetInsertPoint(write);
    for (unsigned part = 0; part < kGroupSize; part += width) {
      llvm::Value* packed = llvm::PoisonValue::get(vector);
      for (unsigned i = 0; i < width; ++i) {
        packed = b_.CreateInsertElement(packed, rows[group * kGroupSize + part + i], i);
      }
      llvm::Value* const pointer =
          b_.CreateInBoundsGEP(lowering_.elementType(), column, b_.CreateAdd(groupRow(group), b_.getInt64(part)));
      b_.CreateAlignedStore(packed, pointer, llvm::Align(16));
    }
    b_.CreateBr(next);
    b_.SetInsertPoint(next);
  }
}

llvm::Value* Tile::shuffle(llvm::Value* value, unsigned lane_mask) const {
  const auto exchange = [&](llvm::Value* word) {
    return b_.CreateIntrinsic(llvm::Intrinsic::nvvm_shfl_sync_bfly_i32, {},
                              {b_.getInt32(~0u), word, b_.getInt32(lane_mask), b_.getInt32(kWarpLanes - 1)});
  };
  llvm::Type* const type = value->getType();
  if (type->isIntegerTy(32)) return exchange(value);
  if (type->isFloatTy()) return b_.CreateBitCast(exchange(b_.CreateBitCast(value, b_.getInt32Ty())), type);
  llvm::Value* const bits = b_.CreateBitCast(value, b_.getInt64Ty());
  llvm::Value* const low = exchange(b_.CreateTrunc(bits, b_.getInt32Ty()));
  llvm::Value* const high = exchange(b_.CreateTrunc(b_.CreateLShr(bits, 32), b_.getInt32Ty()));
  return b_.CreateBitCast(
      b_.CreateOr(b_.CreateZExt(low, b_.getInt64Ty()), b_.CreateShl(b_.CreateZExt(high, b_.getInt64Ty()), 32)), type);
}

// The sums over the warp's lanes of several groups at once, neighbours first. While more than one group is left, the
// lanes share the work: after the step with mask m, a lane goes on with the groups whose number has the lane's bit m.
// In the end lane l holds the sum of group l modulo their number.
llvm::Value* Tile::sumLanes(std::vector<llvm::Value*> sums) const {
  const auto add = [&](llvm::Value* x, llvm::Value* y) {
    return x->getType()->isIntegerTy() ? b_.CreateAdd(x, y) : b_.CreateFAdd(x, y);
  };
  for (unsigned mask = 1; mask < kWarpLanes; mask *= 2) {
    if (sums.size() == 1) {
      sums[0] = add(sums[0], shuffle(sums[0], mask));
      continue;
    }
    llvm::Value* const odd = b_.CreateICmpNE(b_.CreateAnd(thread_, mask), b_.getInt32(0));
    std::vector<llvm::Value*> halves;
    for (std::size_t i = 0; i < sums.size(); i += 2) {
      llvm::Value* const keep = b_.CreateSelect(odd, sums[i + 1], sums[i]);
      llvm::Value* const send = b_.CreateSelect(odd, sums[i], sums[i + 1]);
      halves.push_back(add(keep, shuffle(send, mask)));
    }
    sums = std::move(halves);
  }
  return sums[0];
}

void Tile::storeLoss(const LossSpec& spec, const LossPointers& pointers, llvm::Value* root,
                     const Rows& predictions) const {
  const Rows target = load(pointers.target);
  const Rows weights = spec.weighted ? load(pointers.weights) : Rows();
  std::vector<llvm::Value*> sums, counts;
  for (unsigned group = 0; group < groups(); ++group) {
    std::vector<llvm::Value*> terms;
    llvm::Value* valid = b_.getInt32(0);
    for (unsigned i = 0; i < kGroupSize; ++i) {
      const unsigned k = group * kGroupSize + i;
      llvm::Value* const difference = b_.CreateFSub(predictions[k], target[k]);
      llvm::Value* term = spec.term == LossTerm::kSquared ? b_.CreateFMul(difference, difference)
                                                          : b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, difference);
      if (spec.weighted) term = b_.CreateFMul(weights[k], term);
      llvm::Value* counted = b_.CreateICmpULT(b_.CreateAdd(groupRow(group), b_.getInt64(i)), row_count_);
      if (spec.skip_invalid) {
        llvm::Value* const magnitude = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, predictions[k]);
        llvm::Value* const infinity = lowering_.literal(std::numeric_limits<double>::infinity());
        counted = b_.CreateAnd(counted, b_.CreateFCmpOLT(magnitude, infinity));
        valid = b_.CreateAdd(valid, b_.CreateZExt(counted, b_.getInt32Ty()));
      }
      terms.push_back(b_.CreateSelect(counted, term, lowering_.literal(0)));
    }
    sums.push_back(b_.CreateFAdd(b_.CreateFAdd(terms[0], terms[1]), b_.CreateFAdd(terms[2], terms[3])));
    counts.push_back(valid);
  }
  llvm::Value* const sum = sumLanes(std::move(sums));
  llvm::Value* const count = spec.skip_invalid ? sumLanes(std::move(counts)) : nullptr;

  // Lane l < groups() writes the sum of group l of its warp: group l of the thread, warp w, is group 4 l + w of the
  // tile.
  llvm::Value* const lane = b_.CreateAnd(thread_, kWarpLanes - 1);
  llvm::Value* const warp = b_.CreateLShr(thread_, 5);
  llvm::Value* const in_tile = b_.CreateAdd(b_.CreateMul(lane, b_.getInt32(kBlockThreads / kWarpLanes)), warp);
  llvm::Value* const group =
      b_.CreateAdd(b_.CreateUDiv(base_, b_.getInt64(kGroupRows)), b_.CreateZExt(in_tile, b_.getInt64Ty()));
  llvm::Value* const group_count =
      b_.CreateUDiv(b_.CreateAdd(row_count_, b_.getInt64(kGroupRows - 1)), b_.getInt64(kGroupRows));
  llvm::Value* const writes =
      b_.CreateAnd(b_.CreateICmpULT(lane, b_.getInt32(groups())), b_.CreateICmpULT(group, group_count));
  llvm::Function* const function = b_.GetInsertBlock()->getParent();
  auto* const write = llvm::BasicBlock::Create(b_.getContext(), "write", function);
  auto* const next = llvm::BasicBlock::Create(b_.getContext(), "next", function);
  b_.CreateCondBr(writes, write, next);
  b_.SetInsertPoint(write);
  llvm::Value* const index = b_.CreateAdd(b_.CreateMul(root, group_count), group);
  b_.CreateStore(sum, b_.CreateInBoundsGEP(lowering_.elementType(), pointers.sums, index));
  if (count != nullptr) b_.CreateStore(count, b_.CreateInBoundsGEP(b_.getInt32Ty(), pointers.counts, index));
  b_.CreateBr(next);
  b_.SetInsertPoint(next);
}

}  // namespace srjit
