#include "compiler/strip.h"

#include <limits>

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

namespace srjit {
namespace {

// A 16-byte access holds four floats or two doubles.
unsigned elementsPerAccess(const Lowering& lowering) {
  return 16 / static_cast<unsigned>(bytesOf(lowering.precision()));
}

}  // namespace

llvm::Value* threadIndex(llvm::IRBuilder<>& builder) {
  return builder.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, {}, {});
}

llvm::Value* blockIndex(llvm::IRBuilder<>& builder) {
  return builder.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, {}, {});
}

llvm::Value* wideProduct(llvm::IRBuilder<>& builder, llvm::Value* x, llvm::Value* y) {
  return builder.CreateMul(builder.CreateZExt(x, builder.getInt64Ty()), builder.CreateZExt(y, builder.getInt64Ty()));
}

llvm::Value* loadConstant(llvm::IRBuilder<>& builder, llvm::Type* type, llvm::Value* pointer, unsigned alignment) {
  llvm::LoadInst* const load = builder.CreateAlignedLoad(type, pointer, llvm::Align(alignment));
  load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(builder.getContext(), {}));
  return load;
}

llvm::Value* shuffleLanes(llvm::IRBuilder<>& builder, llvm::Value* value, unsigned lane_mask) {
  const auto exchange = [&](llvm::Value* word) {
    return builder.CreateIntrinsic(
        llvm::Intrinsic::nvvm_shfl_sync_bfly_i32, {},
        {builder.getInt32(~0u), word, builder.getInt32(lane_mask), builder.getInt32(kWarpLanes - 1)});
  };
  llvm::Type* const type = value->getType();
  if (type->isIntegerTy(32)) return exchange(value);
  if (type->isFloatTy()) {
    return builder.CreateBitCast(exchange(builder.CreateBitCast(value, builder.getInt32Ty())), type);
  }
  llvm::Value* const bits = builder.CreateBitCast(value, builder.getInt64Ty());
  llvm::Value* const low = exchange(builder.CreateTrunc(bits, builder.getInt32Ty()));
  llvm::Value* const high = exchange(builder.CreateTrunc(builder.CreateLShr(bits, 32), builder.getInt32Ty()));
  return builder.CreateBitCast(builder.CreateOr(builder.CreateZExt(low, builder.getInt64Ty()),
                                                builder.CreateShl(builder.CreateZExt(high, builder.getInt64Ty()), 32)),
                               type);
}

Strip::Strip(Lowering& lowering, const DeviceOptions& options, llvm::Value* row_count, llvm::Value* number)
    : lowering_(lowering),
      b_(lowering.builder()),
      rows_per_thread_(options.rows_per_thread),
      row_count_(row_count),
      number_(number),
      begin_(wideProduct(b_, number, b_.getInt32(kWarpLanes * rows_per_thread_))),
      lane_(b_.CreateAnd(threadIndex(b_), kWarpLanes - 1)) {
  llvm::Value* const own = b_.CreateAdd(begin_, b_.CreateZExt(b_.CreateShl(lane_, 2), b_.getInt64Ty()));
  for (unsigned group = 0; group < groups(); ++group) {
    group_rows_.push_back(b_.CreateAdd(own, b_.getInt64(group * kGroupRows)));
    in_range_.push_back(b_.CreateICmpULT(group_rows_.back(), row_count_));
  }
}

void Strip::leaveIfEmpty() const {
  llvm::Function* const function = b_.GetInsertBlock()->getParent();
  auto* const leave = llvm::BasicBlock::Create(b_.getContext(), "leave", function);
  auto* const stay = llvm::BasicBlock::Create(b_.getContext(), "stay", function);
  b_.CreateCondBr(b_.CreateICmpULT(begin_, row_count_), stay, leave);
  b_.SetInsertPoint(leave);
  b_.CreateRetVoid();
  b_.SetInsertPoint(stay);
}

llvm::Value* Strip::existingGroup(unsigned group) const {
  return b_.CreateSelect(in_range_[group], group_rows_[group], b_.getInt64(0));
}

llvm::Value* Strip::existingRow(unsigned k) const {
  llvm::Value* const row = b_.CreateAdd(group_rows_[k / kGroupSize], b_.getInt64(k % kGroupSize));
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, row, b_.CreateSub(row_count_, b_.getInt64(1)));
}

Rows Strip::load(llvm::Value* column) const {
  const unsigned width = elementsPerAccess(lowering_);
  auto* const vector = llvm::FixedVectorType::get(lowering_.elementType(), width);
  Rows rows;
  for (unsigned group = 0; group < groups(); ++group) {
    llvm::Value* const row = existingGroup(group);
    for (unsigned part = 0; part < kGroupSize; part += width) {
      llvm::Value* const pointer =
          b_.CreateInBoundsGEP(lowering_.elementType(), column, b_.CreateAdd(row, b_.getInt64(part)));
      llvm::Value* const packed = loadConstant(b_, vector, pointer, 16);
      for (unsigned i = 0; i < width; ++i) rows.push_back(b_.CreateExtractElement(packed, i));
    }
  }
  return rows;
}

Rows Strip::loadStrided(llvm::Value* column, llvm::Value* row_stride) const {
  Rows rows;
  for (unsigned k = 0; k < rows_per_thread_; ++k) {
    llvm::Value* const offset = b_.CreateMul(existingRow(k), row_stride);
    rows.push_back(loadConstant(b_, lowering_.elementType(), b_.CreateGEP(lowering_.elementType(), column, offset),
                                static_cast<unsigned>(bytesOf(lowering_.precision()))));
  }
  return rows;
}

void Strip::store(llvm::Value* column, const Rows& rows) const {
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
          b_.CreateInBoundsGEP(lowering_.elementType(), column, b_.CreateAdd(group_rows_[group], b_.getInt64(part)));
      b_.CreateAlignedStore(packed, pointer, llvm::Align(16));
    }
    b_.CreateBr(next);
    b_.SetInsertPoint(next);
  }
}

// The sums over the warp's lanes of several groups at once, neighbours first. While more than one group is left, the
// lanes share the work: after the step with mask m, a lane goes on with the groups whose number has the lane's bit m.
// In the end lane l holds the sum of group l modulo their number.
llvm::Value* Strip::sumLanes(std::vector<llvm::Value*> sums) const {
  const auto add = [&](llvm::Value* x, llvm::Value* y) {
    return x->getType()->isIntegerTy() ? b_.CreateAdd(x, y) : b_.CreateFAdd(x, y);
  };
  for (unsigned mask = 1; mask < kWarpLanes; mask *= 2) {
    if (sums.size() == 1) {
      sums[0] = add(sums[0], shuffleLanes(b_, sums[0], mask));
      continue;
    }
    llvm::Value* const odd = b_.CreateICmpNE(b_.CreateAnd(lane_, mask), b_.getInt32(0));
    std::vector<llvm::Value*> halves;
    for (std::size_t i = 0; i < sums.size(); i += 2) {
      llvm::Value* const keep = b_.CreateSelect(odd, sums[i + 1], sums[i]);
      llvm::Value* const send = b_.CreateSelect(odd, sums[i], sums[i + 1]);
      halves.push_back(add(keep, shuffleLanes(b_, send, mask)));
    }
    sums = std::move(halves);
  }
  return sums[0];
}

llvm::Value* Strip::isCounted(const LossSpec& spec, unsigned k, llvm::Value* prediction) const {
  llvm::Value* const row = b_.CreateAdd(group_rows_[k / kGroupSize], b_.getInt64(k % kGroupSize));
  llvm::Value* const exists = b_.CreateICmpULT(row, row_count_);
  if (!spec.skip_invalid) return exists;
  llvm::Value* const magnitude = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, prediction);
  llvm::Value* const infinity = lowering_.literal(std::numeric_limits<double>::infinity());
  return b_.CreateAnd(exists, b_.CreateFCmpOLT(magnitude, infinity));
}

void Strip::storeLoss(const LossSpec& spec, const LossPointers& pointers, llvm::Value* output,
                      const Rows& predictions) const {
  const bool weighs_rows = spec.weighted && spec.skip_invalid;
  const Rows target = load(pointers.target);
  const Rows weights = spec.weighted ? load(pointers.weights) : Rows();
  llvm::Value* const zero = lowering_.literal(0);
  const auto sumOfFour = [&](const std::array<llvm::Value*, kGroupSize>& x) {
    return b_.CreateFAdd(b_.CreateFAdd(x[0], x[1]), b_.CreateFAdd(x[2], x[3]));
  };
  std::vector<llvm::Value*> sums, counts, valid_weights;
  for (unsigned group = 0; group < groups(); ++group) {
    std::array<llvm::Value*, kGroupSize> terms{}, kept{};
    llvm::Value* valid = b_.getInt32(0);
    for (unsigned i = 0; i < kGroupSize; ++i) {
      const unsigned k = group * kGroupSize + i;
      llvm::Value* const difference = b_.CreateFSub(predictions[k], target[k]);
      llvm::Value* term = spec.term == LossTerm::kSquared ? b_.CreateFMul(difference, difference)
                                                          : b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, difference);
      if (spec.weighted) term = b_.CreateFMul(weights[k], term);
      llvm::Value* const counted = isCounted(spec, k, predictions[k]);
      valid = b_.CreateAdd(valid, b_.CreateZExt(counted, b_.getInt32Ty()));
      terms[i] = b_.CreateSelect(counted, term, zero);
      if (weighs_rows) kept[i] = b_.CreateSelect(counted, weights[k], zero);
    }
    sums.push_back(sumOfFour(terms));
    counts.push_back(valid);
    if (weighs_rows) valid_weights.push_back(sumOfFour(kept));
  }
  std::vector<llvm::Value*> channels = {sumLanes(std::move(sums))};
  if (spec.skip_invalid) channels.push_back(b_.CreateUIToFP(sumLanes(std::move(counts)), lowering_.type()));
  if (weighs_rows) channels.push_back(sumLanes(std::move(valid_weights)));
  storeSums(pointers, output, channels);
}

// Lane l < groups() writes the sums of group l of the strip.
void Strip::storeSums(const LossPointers& pointers, llvm::Value* output,
                      const std::vector<llvm::Value*>& channels) const {
  llvm::Type* const wide = b_.getInt64Ty();
  llvm::Value* const group = b_.CreateAdd(wideProduct(b_, number_, b_.getInt32(groups())), b_.CreateZExt(lane_, wide));
  llvm::Value* const group_count =
      b_.CreateUDiv(b_.CreateAdd(row_count_, b_.getInt64(kGroupRows - 1)), b_.getInt64(kGroupRows));
  llvm::Value* const writes =
      b_.CreateAnd(b_.CreateICmpULT(lane_, b_.getInt32(groups())), b_.CreateICmpULT(group, group_count));
  llvm::Function* const function = b_.GetInsertBlock()->getParent();
  auto* const write = llvm::BasicBlock::Create(b_.getContext(), "write", function);
  auto* const next = llvm::BasicBlock::Create(b_.getContext(), "next", function);
  b_.CreateCondBr(writes, write, next);
  b_.SetInsertPoint(write);
  llvm::Value* index = b_.CreateAdd(b_.CreateMul(output, group_count), group);
  for (std::size_t channel = 0; channel < channels.size(); ++channel) {
    if (channel > 0) index = b_.CreateAdd(index, pointers.channel_stride);
    b_.CreateStore(channels[channel], b_.CreateInBoundsGEP(lowering_.elementType(), pointers.sums, index));
  }
  b_.CreateBr(next);
  b_.SetInsertPoint(next);
}

}  // namespace srjit
