#include "compiler/nvptx/strip.h"

#include <array>
#include <bit>
#include <limits>
#include <utility>

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

namespace srjit {
namespace {

// A 16-byte access holds four floats or two doubles.
unsigned elementsPerAccess(const Lowering& lowering) {
  return 16 / static_cast<unsigned>(bytesOf(lowering.precision()));
}

}  // namespace

LossPointers::LossPointers(const llvm::Function& kernel, unsigned first, const LossSpec& loss)
    : target(kernel.getArg(first)),
      weights(kernel.getArg(first + 1)),
      sums(kernel.getArg(first + 2)),
      channel_stride(kernel.getArg(first + 3)),
      centre(isOfMoments(loss.term) ? kernel.getArg(first + 4) : nullptr) {}

void appendResultTypes(std::vector<llvm::Type*>& types, llvm::IRBuilder<>& builder,
                       const std::optional<LossSpec>& loss) {
  llvm::Type* const pointer = llvm::PointerType::get(builder.getContext(), 1);
  types.insert(types.end(), loss ? 3 : 1, pointer);
  types.insert(types.end(), loss && isOfMoments(loss->term) ? 2 : 1, builder.getInt64Ty());
}

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

void keepRolled(llvm::BranchInst& back) {
  llvm::LLVMContext& context = back.getContext();
  llvm::MDNode* const keep = llvm::MDNode::get(context, {llvm::MDString::get(context, "llvm.loop.unroll.disable")});
  llvm::MDNode* const loop = llvm::MDNode::getDistinct(context, {nullptr, keep});
  loop->replaceOperandWith(0, loop);
  back.setMetadata(llvm::LLVMContext::MD_loop, loop);
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
  for (unsigned row_group = 0; row_group < rowGroups(); ++row_group) {
    group_rows_.push_back(b_.CreateAdd(own, b_.getInt64(row_group * kGroupRows)));
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

llvm::Value* Strip::existingRowGroup(unsigned row_group) const {
  return b_.CreateSelect(in_range_[row_group], group_rows_[row_group], b_.getInt64(0));
}

llvm::Value* Strip::existingRow(unsigned k) const {
  llvm::Value* const row = b_.CreateAdd(group_rows_[k / kLaneRows], b_.getInt64(k % kLaneRows));
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, row, b_.CreateSub(row_count_, b_.getInt64(1)));
}

// Where all rows exist, one address serves all row groups.
Rows Strip::loadFrom(llvm::Value* column, bool all_exist) const {
  const unsigned width = elementsPerAccess(lowering_);
  auto* const vector = llvm::FixedVectorType::get(lowering_.elementType(), width);
  Rows rows;
  for (unsigned row_group = 0; row_group < rowGroups(); ++row_group) {
    llvm::Value* const row = all_exist ? group_rows_[0] : existingRowGroup(row_group);
    llvm::Value* const first = b_.CreateInBoundsGEP(lowering_.elementType(), column, row);
    for (unsigned part = 0; part < kLaneRows; part += width) {
      const unsigned offset = part + (all_exist ? row_group * static_cast<unsigned>(kGroupRows) : 0);
      llvm::Value* const pointer = b_.CreateConstInBoundsGEP1_64(lowering_.elementType(), first, offset);
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
  for (unsigned row_group = 0; row_group < rowGroups(); ++row_group) {
    auto* const write = llvm::BasicBlock::Create(b_.getContext(), "write", function);
    auto* const next = llvm::BasicBlock::Create(b_.getContext(), "next", function);
    b_.CreateCondBr(in_range_[row_group], write, next);
    b_.SetInsertPoint(write);
    for (unsigned part = 0; part < kLaneRows; part += width) {
      llvm::Value* packed = llvm::PoisonValue::get(vector);
      for (unsigned i = 0; i < width; ++i) {
        packed = b_.CreateInsertElement(packed, rows[row_group * kLaneRows + part + i], i);
      }
      llvm::Value* const pointer = b_.CreateInBoundsGEP(lowering_.elementType(), column,
                                                        b_.CreateAdd(group_rows_[row_group], b_.getInt64(part)));
      b_.CreateAlignedStore(packed, pointer, llvm::Align(16));
    }
    b_.CreateBr(next);
    b_.SetInsertPoint(next);
  }
}

llvm::Value* Strip::numberOfRowGroup(llvm::Value* own) const {
  return b_.CreateAdd(wideProduct(b_, number_, b_.getInt32(rowGroups())), b_.CreateZExt(own, b_.getInt64Ty()));
}

llvm::Value* Strip::rowGroupCount() const {
  return b_.CreateUDiv(b_.CreateAdd(row_count_, b_.getInt64(kGroupRows - 1)), b_.getInt64(kGroupRows));
}

llvm::Value* Strip::exists(unsigned k) const {
  return b_.CreateICmpULT(b_.CreateAdd(group_rows_[k / kLaneRows], b_.getInt64(k % kLaneRows)), row_count_);
}

llvm::Value* Strip::allExist() const {
  llvm::Value* const end = b_.CreateAdd(begin_, b_.getInt64(std::uint64_t{kWarpLanes} * rows_per_thread_));
  return b_.CreateICmpULE(end, row_count_);
}

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

// Whether row k exists and, if the spec says so, has a finite prediction.
llvm::Value* Strip::isCounted(const LossSpec& spec, unsigned k, llvm::Value* prediction) const {
  if (!spec.skip_invalid) return exists(k);
  llvm::Value* const magnitude = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, prediction);
  llvm::Value* const infinity = lowering_.literal(std::numeric_limits<double>::infinity());
  return b_.CreateAnd(exists(k), b_.CreateFCmpOLT(magnitude, infinity));
}

// Whether all lanes have finite predictions: 0 times a number is 0, or NaN if it is not finite.
llvm::Value* Strip::areFinite(const Rows& predictions) const {
  llvm::Value* const zero = lowering_.literal(0);
  llvm::Value* sum = b_.CreateFMul(predictions[0], zero);
  for (std::size_t k = 1; k < predictions.size(); ++k) {
    sum = b_.CreateIntrinsic(llvm::Intrinsic::fma, {lowering_.type()}, {predictions[k], zero, sum});
  }
  return b_.CreateIntrinsic(llvm::Intrinsic::nvvm_vote_all_sync, {}, {b_.getInt32(~0u), b_.CreateFCmpOEQ(sum, zero)});
}

// What a row adds to each channel but that of counts.
std::vector<llvm::Value*> Strip::itemsOf(const LossSpec& spec, const LossPointers& pointers, llvm::Value* prediction,
                                         llvm::Value* target, llvm::Value* weight) const {
  std::vector<llvm::Value*> items;
  const auto add = [&](const Value& term) {
    llvm::Value* const made = lowering_.materialize(term);
    items.push_back(spec.weighted ? b_.CreateFMul(weight, made) : made);
  };
  Value read(target, lowering_);
  if (pointers.centre != nullptr) {
    llvm::Type* const bits = b_.getIntNTy(8 * static_cast<unsigned>(bytesOf(lowering_.precision())));
    read = read - Value(b_.CreateBitCast(b_.CreateTrunc(pointers.centre, bits), lowering_.type()), lowering_);
  }
  eachLossTerm(spec.term, Value(prediction, lowering_), read, add);
  if (spec.targetSums() > 0) eachTargetTerm(read, add);
  if (spec.counts() == 2) items.push_back(weight);
  return items;
}

/// Sums of one thread, except the count: that is of the row group that the lane writes.
struct Strip::ThreadSums {
  std::vector<std::vector<llvm::Value*>> channels;  ///< but that of counts: one sum per row group
  llvm::Value* count = nullptr;                     ///< of valid rows, if they are counted
};

// The sums of the thread's rows, one per row group; with `all_count`, every row is known to count.
Strip::ThreadSums Strip::sumThread(const LossSpec& spec, const LossPointers& pointers, const Rows& predictions,
                                   bool all_count) const {
  const Rows target = loadFrom(pointers.target, all_count);
  const Rows weights = spec.weighted ? loadFrom(pointers.weights, all_count) : Rows(predictions.size());
  llvm::Value* const zero = lowering_.literal(0);
  const auto sumOfFour = [&](const std::array<llvm::Value*, kLaneRows>& x) {
    return b_.CreateFAdd(b_.CreateFAdd(x[0], x[1]), b_.CreateFAdd(x[2], x[3]));
  };
  ThreadSums sums;
  sums.channels.resize(spec.channels() - (spec.skip_invalid ? 1 : 0));
  llvm::Value* valid = b_.getInt32(0);
  for (unsigned row_group = 0; row_group < rowGroups(); ++row_group) {
    std::vector<std::array<llvm::Value*, kLaneRows>> items(sums.channels.size());
    for (unsigned i = 0; i < kLaneRows; ++i) {
      const unsigned k = row_group * kLaneRows + i;
      const std::vector<llvm::Value*> of_row = itemsOf(spec, pointers, predictions[k], target[k], weights[k]);
      llvm::Value* const counted = all_count ? nullptr : isCounted(spec, k, predictions[k]);
      for (std::size_t c = 0; c < items.size(); ++c) {
        items[c][i] = all_count ? of_row[c] : b_.CreateSelect(counted, of_row[c], zero);
      }
      if (all_count) continue;
      llvm::Value* const one = b_.getInt32(1u << (kCountBits * row_group));
      valid = b_.CreateAdd(valid, b_.CreateSelect(counted, one, b_.getInt32(0)));
    }
    for (std::size_t c = 0; c < items.size(); ++c) sums.channels[c].push_back(sumOfFour(items[c]));
  }
  if (!spec.skip_invalid) return sums;
  // One number holds the counts of all row groups.
  sums.count = lowering_.literal(kGroupRows);
  if (!all_count) {
    llvm::Value* const counts = sumLanes({valid});
    llvm::Value* const own = b_.CreateLShr(counts, b_.CreateAnd(b_.CreateMul(lane_, b_.getInt32(kCountBits)), 31));
    sums.count = b_.CreateUIToFP(b_.CreateAnd(own, (1u << kCountBits) - 1), lowering_.type());
  }
  return sums;
}

// Nearly always every row of a strip counts; then nothing needs to be compared and selected row by row.
void Strip::storeLoss(const LossSpec& spec, const LossPointers& pointers, llvm::Value* output,
                      const Rows& predictions) const {
  llvm::Function* const function = b_.GetInsertBlock()->getParent();
  const auto newBlock = [&](const char* name) { return llvm::BasicBlock::Create(b_.getContext(), name, function); };
  llvm::BasicBlock* const all = newBlock("all");
  llvm::BasicBlock* const some = newBlock("some");
  llvm::BasicBlock* const merged = newBlock("merged");
  llvm::Value* every = allExist();
  if (spec.skip_invalid) every = b_.CreateAnd(areFinite(predictions), every);
  b_.CreateCondBr(every, all, some);
  b_.SetInsertPoint(all);
  const ThreadSums of_all = sumThread(spec, pointers, predictions, true);
  b_.CreateBr(merged);
  b_.SetInsertPoint(some);
  const ThreadSums of_some = sumThread(spec, pointers, predictions, false);
  b_.CreateBr(merged);
  b_.SetInsertPoint(merged);
  const auto merge = [&](llvm::Value* x, llvm::Value* y) -> llvm::Value* {
    llvm::PHINode* const value = b_.CreatePHI(lowering_.type(), 2);
    value->addIncoming(x, all);
    value->addIncoming(y, some);
    return value;
  };
  ThreadSums sums = of_all;
  for (std::size_t c = 0; c < sums.channels.size(); ++c) {
    for (std::size_t g = 0; g < sums.channels[c].size(); ++g) {
      sums.channels[c][g] = merge(sums.channels[c][g], of_some.channels[c][g]);
    }
  }
  if (spec.skip_invalid) sums.count = merge(of_all.count, of_some.count);
  storeSums(spec, pointers, output, sums);
}

template <class Store>
void Strip::storeWhere(llvm::Value* condition, const Store& store) const {
  llvm::Function* const function = b_.GetInsertBlock()->getParent();
  auto* const write = llvm::BasicBlock::Create(b_.getContext(), "write", function);
  auto* const next = llvm::BasicBlock::Create(b_.getContext(), "next", function);
  b_.CreateCondBr(condition, write, next);
  b_.SetInsertPoint(write);
  store();
  b_.CreateBr(next);
  b_.SetInsertPoint(next);
}

constexpr unsigned kMostRowsPerThread = 16;
static_assert(std::bit_ceil((kMostChannels - 1) * kMostRowsPerThread / kLaneRows) <= 32, "each item has a lane");

// After sumLanes() lane l has item l, which is the sum of a channel and a row group: lanes share the work of several.
void Strip::storeSums(const LossSpec& spec, const LossPointers& pointers, llvm::Value* output,
                      const ThreadSums& sums) const {
  const unsigned groups = rowGroups();
  const bool is_one = sums.channels.size() == 1;
  std::vector<llvm::Value*> items;
  for (const auto& channel : sums.channels) items.insert(items.end(), channel.begin(), channel.end());
  llvm::Value* const has_item = b_.CreateICmpULT(lane_, b_.getInt32(static_cast<unsigned>(items.size())));
  items.resize(std::bit_ceil(items.size()), lowering_.literal(0));
  llvm::Value* const total = sumLanes(std::move(items));
  llvm::Value* const row_group = numberOfRowGroup(is_one ? lane_ : b_.CreateAnd(lane_, groups - 1));
  llvm::Value* const row_group_count = rowGroupCount();
  llvm::Value* const exists = b_.CreateICmpULT(row_group, row_group_count);
  llvm::Value* const index = b_.CreateAdd(b_.CreateMul(output, row_group_count), row_group);
  const auto storeTo = [&](llvm::Value* channel, llvm::Value* value) {
    llvm::Value* const to = b_.CreateAdd(index, b_.CreateMul(channel, pointers.channel_stride));
    b_.CreateStore(value, b_.CreateInBoundsGEP(lowering_.elementType(), pointers.sums, to));
  };
  const std::uint64_t counts = spec.channels() - spec.counts();  // their channel
  llvm::Value* channel = b_.getInt64(0);
  if (!is_one) {
    channel =
        b_.CreateZExt(b_.CreateLShr(lane_, static_cast<std::uint64_t>(std::countr_zero(groups))), b_.getInt64Ty());
    llvm::Value* const is_behind = b_.CreateICmpUGE(channel, b_.getInt64(counts));
    if (sums.count != nullptr) channel = b_.CreateAdd(channel, b_.CreateZExt(is_behind, b_.getInt64Ty()));
  }
  storeWhere(b_.CreateAnd(has_item, exists), [&] { storeTo(channel, total); });
  if (sums.count == nullptr) return;
  llvm::Value* const has_count = b_.CreateICmpULT(lane_, b_.getInt32(groups));
  storeWhere(b_.CreateAnd(has_count, exists), [&] { storeTo(b_.getInt64(counts), sums.count); });
}

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
