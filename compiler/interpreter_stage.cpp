#include "compiler/interpreter_stage.h"

#include <algorithm>

#include <fmt/format.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "compiler/bytecode.h"
#include "compiler/device_module.h"

namespace srjit {

using llvm::BasicBlock;

std::size_t interpreterSharedBytes(Precision precision, const InterpreterGeometry& geometry, std::size_t staged_columns,
                                   std::size_t slots, std::size_t block_tokens) {
  const std::size_t pitch = std::size_t{geometry.row_warps} * kWarpLanes * geometry.rows_per_thread *
                            static_cast<std::size_t>(bytesOf(precision));
  const std::size_t teams = kBlockWarps / geometry.row_warps;
  return (staged_columns + teams * slots) * pitch + (block_tokens + 2 * teams) * sharedTokenBytes(precision);
}

std::vector<llvm::Type*> InterpreterStage::parameterTypes(llvm::IRBuilder<>& builder, bool loss) {
  llvm::Type* const pointer = globalPointer(builder.getContext());
  llvm::Type* const size = builder.getInt64Ty();
  llvm::Type* const word = builder.getInt32Ty();
  std::vector<llvm::Type*> types = {pointer, size, size, size, pointer, pointer, pointer, pointer,
                                    word,    word, word, word, word,    word,    pointer};
  if (loss) types.insert(types.end(), {pointer, pointer});
  types.push_back(size);
  return types;
}

InterpreterStage::InterpreterStage(const HandlerTable& table, const DeviceOptions& options, Lowering& lowering,
                                   llvm::GlobalVariable& shared)
    : table_(table),
      options_(options),
      lowering_(lowering),
      b_(lowering.builder()),
      kernel_(b_.GetInsertBlock()->getParent()),
      shared_(shared),
      is_async_(options.arch != "sm_75"),
      strip_bytes_(kWarpLanes * options.rows_per_thread * static_cast<unsigned>(bytesOf(options.precision))),
      strip_(lowering, options, argument(kRowCount), stripNumber()) {
  pitch_ = b_.CreateMul(argument(kRowWarps), word(strip_bytes_));
  place_ = b_.CreateAdd(b_.CreateMul(warp_place_, word(strip_bytes_)), b_.CreateShl(strip_.lane(), 4));
  team_slots_ = b_.CreateMul(team_, argument(kSlots));
}

// row_warps is a power of two, so the warp's number splits into bits.
llvm::Value* InterpreterStage::stripNumber() {
  llvm::Value* const warp = b_.CreateLShr(threadIndex(b_), word(5));
  row_warps_log_ = b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, argument(kRowWarps), b_.getTrue());
  warp_place_ = b_.CreateAnd(warp, b_.CreateSub(argument(kRowWarps), word(1)));
  team_ = b_.CreateLShr(warp, row_warps_log_);
  teams_ = b_.CreateLShr(word(kBlockWarps), row_warps_log_);
  llvm::Value* const block = blockIndex(b_);
  chunk_ = b_.CreateUDiv(block, argument(kTiles));
  llvm::Value* const tile = b_.CreateSub(block, b_.CreateMul(chunk_, argument(kTiles)));
  return b_.CreateAdd(b_.CreateMul(tile, argument(kRowWarps)), warp_place_);
}

void InterpreterStage::run() {
  findPrograms();
  copyColumns();
  copyTokens();
  if (is_async_) b_.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_wait_all, {}, {});
  b_.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier0, {}, {});
  strip_.leaveIfEmpty();
}

// Reads where the team's tokens are. The loads come before the copies of columns, so that their latencies overlap.
void InterpreterStage::findPrograms() {
  const auto existing = [&](llvm::Value* program) {
    return b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, program, argument(kPrograms));
  };
  const auto offsetOf = [&](llvm::Value* program) {
    return loadConstant(b_, b_.getInt32Ty(), b_.CreateGEP(b_.getInt32Ty(), argument(kProgramOffsets), wide(program)),
                        4);
  };
  llvm::Value* const per_warp = argument(kProgramsPerWarp);
  llvm::Value* const block_first = b_.CreateMul(b_.CreateMul(chunk_, teams_), per_warp);
  llvm::Value* const first = b_.CreateAdd(block_first, b_.CreateMul(team_, per_warp));
  llvm::Value* const block_begin = offsetOf(existing(block_first));
  token_begin_ = offsetOf(existing(first));
  token_count_ = b_.CreateSub(offsetOf(existing(b_.CreateAdd(first, per_warp))), token_begin_);
  llvm::Value* const columns = b_.CreateAdd(argument(kStagedColumns), b_.CreateMul(teams_, argument(kSlots)));
  llvm::Value* const before = b_.CreateAdd(b_.CreateSub(token_begin_, block_begin), b_.CreateShl(team_, 1));
  first_token_ =
      b_.CreateAdd(b_.CreateMul(columns, pitch_), b_.CreateMul(before, word(sharedTokenBytes(options_.precision))));
}

// for (i = first; i < end; i += step) body(i)
template <class Body>
void InterpreterStage::forEach(llvm::Value* first, llvm::Value* end, llvm::Value* step, const Body& body) const {
  BasicBlock* const before = b_.GetInsertBlock();
  BasicBlock* const header = newBlock("stage");
  BasicBlock* const block = newBlock("copy");
  BasicBlock* const exit = newBlock("staged");
  b_.CreateBr(header);
  b_.SetInsertPoint(header);
  llvm::PHINode* const index = b_.CreatePHI(b_.getInt32Ty(), 2);
  index->addIncoming(first, before);
  b_.CreateCondBr(b_.CreateICmpULT(index, end), block, exit);
  b_.SetInsertPoint(block);
  body(index);
  index->addIncoming(b_.CreateAdd(index, step), b_.GetInsertBlock());
  b_.CreateBr(header);
  b_.SetInsertPoint(exit);
}

// A thread copies what it and the threads at its place in the other teams will read; the teams share out the columns.
void InterpreterStage::copyColumns() const {
  llvm::Type* const element = lowering_.elementType();
  const auto element_bytes = static_cast<unsigned>(bytesOf(options_.precision));
  const unsigned width = 16 / element_bytes;
  std::vector<llvm::Value*> sources;  // of the thread's rows, in elements from the column's begin
  for (unsigned k = 0; k < options_.rows_per_thread; ++k) {
    sources.push_back(options_.strided_columns
                          ? b_.CreateMul(strip_.existingRow(k), argument(kRowStride))
                          : b_.CreateAdd(strip_.existingGroup(k / kGroupSize), b_.getInt64(k % kGroupSize)));
  }
  forEach(team_, argument(kStagedColumns), teams_, [&](llvm::Value* staged) {
    llvm::Value* const number =
        loadConstant(b_, b_.getInt32Ty(), b_.CreateGEP(b_.getInt32Ty(), argument(kColumnMap), wide(staged)), 4);
    llvm::Value* const column =
        b_.CreateGEP(element, argument(kColumns), b_.CreateMul(wide(number), argument(kColumnStride)));
    llvm::Value* const to = b_.CreateAdd(b_.CreateMul(staged, pitch_), place_);
    const unsigned step = options_.strided_columns ? 1 : width;
    for (unsigned k = 0; k < options_.rows_per_thread; k += step) {
      const unsigned offset = k / width * kAccessStride + k % width * element_bytes;
      copyAsync(sharedAt(b_.CreateAdd(to, word(offset))), b_.CreateGEP(element, column, sources[k]),
                step * element_bytes);
    }
  });
}

// Every copy is under way before the first has arrived, where the architecture can do so.
void InterpreterStage::copyAsync(llvm::Value* to, llvm::Value* from, unsigned bytes) const {
  if (!is_async_) {
    auto* const type = llvm::FixedVectorType::get(b_.getInt32Ty(), bytes / 4);
    b_.CreateAlignedStore(loadConstant(b_, type, from, bytes), to, llvm::Align(bytes));
    return;
  }
  llvm::Type* const word_type = b_.getInt32Ty();
  auto* const type = llvm::FunctionType::get(b_.getVoidTy(), {word_type, from->getType()}, false);
  auto* const copy = llvm::InlineAsm::get(
      type, fmt::format("cp.async.{}.shared.global [$0], [$1], {};", bytes == 16 ? "cg" : "ca", bytes), "r,l,~{memory}",
      true);
  b_.CreateCall(type, copy, {b_.CreatePtrToInt(to, word_type), from});
}

llvm::Value* InterpreterStage::placeOfColumn(llvm::Value* number) const {
  llvm::Value* const slot = b_.CreateICmpUGE(number, argument(kStagedColumns));
  return b_.CreateMul(b_.CreateAdd(number, b_.CreateSelect(slot, team_slots_, word(0))), pitch_);
}

// Without parameters the pointer may be null, so it is read only where a token asks for it.
llvm::Value* InterpreterStage::parameterWhere(llvm::Value* condition, llvm::Value* index) const {
  BasicBlock* const before = b_.GetInsertBlock();
  BasicBlock* const fetch = newBlock("parameter");
  BasicBlock* const next = newBlock("place");
  b_.CreateCondBr(condition, fetch, next);
  b_.SetInsertPoint(fetch);
  llvm::Type* const element = lowering_.elementType();
  llvm::Value* const loaded = b_.CreateLoad(element, b_.CreateGEP(element, argument(kParameters), wide(index)));
  b_.CreateBr(next);
  b_.SetInsertPoint(next);
  llvm::PHINode* const value = b_.CreatePHI(element, 2);
  value->addIncoming(llvm::Constant::getNullValue(element), before);
  value->addIncoming(loaded, fetch);
  return value;
}

void InterpreterStage::storeToken(llvm::Value* index, llvm::Value* code, llvm::Value* argument,
                                  llvm::Value* value) const {
  const unsigned bytes = sharedTokenBytes(options_.precision);
  llvm::Value* const offset = b_.CreateAdd(first_token_, b_.CreateMul(index, word(bytes)));
  llvm::Value* packed = llvm::PoisonValue::get(llvm::FixedVectorType::get(b_.getInt32Ty(), 2));
  packed = b_.CreateInsertElement(packed, code, std::uint64_t{0});
  packed = b_.CreateInsertElement(packed, argument, std::uint64_t{1});
  b_.CreateAlignedStore(packed, sharedAt(offset), llvm::Align(8));
  if (bytes == 16) b_.CreateAlignedStore(value, sharedAt(b_.CreateAdd(offset, word(8))), llvm::Align(8));
}

// A team copies its own tokens. The numbers of columns and slots become byte offsets, and parameters their values.
void InterpreterStage::copyTokens() const {
  auto* const token_type = llvm::FixedVectorType::get(b_.getInt32Ty(), 2);
  llvm::Value* const thread = b_.CreateAdd(b_.CreateShl(warp_place_, 5), strip_.lane());
  llvm::Value* const threads = b_.CreateShl(argument(kRowWarps), 5);
  forEach(thread, token_count_, threads, [&](llvm::Value* i) {
    llvm::Value* const index = wide(b_.CreateAdd(token_begin_, i));
    llvm::Value* const token = loadConstant(b_, token_type, b_.CreateGEP(token_type, argument(kTokens), index), 8);
    llvm::Value* const code = b_.CreateExtractElement(token, std::uint64_t{0});
    llvm::Value* const number = b_.CreateExtractElement(token, std::uint64_t{1});
    llvm::Value* const kind = b_.CreateLShr(code, word(DeviceToken::kArgumentShift));
    llvm::Value* const is_parameter = b_.CreateICmpEQ(kind, word(DeviceToken::kParameter));
    llvm::Value* const value = parameterWhere(is_parameter, number);
    llvm::Value* argument =
        b_.CreateSelect(b_.CreateICmpEQ(kind, word(DeviceToken::kColumn)), placeOfColumn(number), number);
    if (options_.precision == Precision::kF32) {
      argument = b_.CreateSelect(is_parameter, b_.CreateBitCast(value, b_.getInt32Ty()), argument);
    }
    llvm::Value* const column =
        b_.CreateAnd(b_.CreateLShr(code, word(DeviceToken::kColumnShift)), word(DeviceToken::kColumnMask));
    llvm::Value* const placed = b_.CreateOr(b_.CreateAnd(code, word(DeviceToken::kHandlerMask)),
                                            b_.CreateShl(placeOfColumn(column), word(DeviceToken::kColumnShift)));
    storeToken(i, placed, argument, value);
  });
  llvm::Value* const halt = word(static_cast<std::uint32_t>(table_.find(Handler::Kind::kHalt, 0)));
  BasicBlock* const write = newBlock("halt");
  BasicBlock* const next = newBlock("staged");
  b_.CreateCondBr(b_.CreateICmpULT(thread, word(2)), write, next);
  b_.SetInsertPoint(write);
  storeToken(b_.CreateAdd(token_count_, thread), halt, word(0), lowering_.literal(0));
  b_.CreateBr(next);
  b_.SetInsertPoint(next);
}

}  // namespace srjit
