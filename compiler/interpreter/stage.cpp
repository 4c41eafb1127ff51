#include "compiler/interpreter/stage.h"

#include <algorithm>

#include <fmt/format.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/kernel.h"
#include "compiler/nvptx/module.h"
#include "compiler/target/architecture.h"

namespace srjit {

using llvm::BasicBlock;

struct InterpreterStage::State {
  State(const HandlerTable& table, const DeviceOptions& options, Lowering& lowering, llvm::GlobalVariable& shared);

  void run() {
    findPrograms();
    copyColumns();
    copyTokens(seat_, tokens_);
    if (is_async_) b_.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_wait_all, {}, {});
    b_.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier0, {}, {});
    strip_.leaveIfEmpty();
  }

  // Rematerializes the values of the kernel's entry through inline assembly, which is opaque to LLVM: values kept in
  // registers until here would leave every handler fewer.
  llvm::Value* copyNextWindow(llvm::Value* begin, llvm::Value* end, llvm::Value* counter) const {
    llvm::Type* const type = b_.getInt32Ty();
    auto* const read =
        llvm::InlineAsm::get(llvm::FunctionType::get(type, {}, false), "mov.u32 $0, %tid.x;", "=r", true);
    const Seat seat = seatOf(b_.CreateCall(read), opaque(argument(kRowWarps)));
    llvm::Value* const window = opaque(argument(kWindow));
    llvm::Value* const count = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b_.CreateSub(end, begin), window);
    llvm::Value* const to = b_.CreateSub(counter, bytesOfTokens(b_.CreateAdd(window, word(2))));
    const TokenCopy copy{begin, end, count, to, seat.lane, word(kWarpLanes)};
    // Barrier: no lane writes before all have read the end of the last window, or reads before all have written.
    const auto meet = [&] { b_.CreateIntrinsic(llvm::Intrinsic::nvvm_bar_warp_sync, {}, {word(~0u)}); };
    meet();
    // Unrolled, the loop would take more registers than any handler.
    keepRolled(*copyTokens(seat, copy));
    meet();
    return copy.to;
  }

  llvm::Value* argument(unsigned parameter) const { return kernel_->getArg(parameter); }
  llvm::Value* word(std::uint32_t value) const { return b_.getInt32(value); }
  llvm::Value* bytesOfTokens(llvm::Value* count) const { return b_.CreateMul(count, word(token_bytes_)); }

  // The value, opaque to LLVM.
  llvm::Value* opaque(llvm::Value* value) const {
    llvm::Type* const type = b_.getInt32Ty();
    return b_.CreateCall(
        llvm::InlineAsm::get(llvm::FunctionType::get(type, {type}, false), "mov.u32 $0, $1;", "=r,r", true), {value});
  }

  llvm::Value* wide(llvm::Value* value) const { return b_.CreateZExt(value, b_.getInt64Ty()); }
  llvm::Value* sharedAt(llvm::Value* offset) const { return b_.CreateGEP(b_.getInt8Ty(), &shared_, offset); }
  llvm::BasicBlock* newBlock(const char* name) const {
    return llvm::BasicBlock::Create(b_.getContext(), name, kernel_);
  }

  /// A warp's position in its block, the distance between columns (`pitch`), and the slots of its team.
  struct Seat {
    llvm::Value *lane, *warp, *warp_place, *team;
    llvm::Value *pitch, *team_slots;
  };
  /// The copy of the first `count` tokens of [begin, end) to byte offset `to`, by `threads` threads; this one is
  /// number `thread`.
  struct TokenCopy {
    llvm::Value *begin, *end, *count;
    llvm::Value* to;
    llvm::Value *thread, *threads;
  };

  // row_warps is a power of two, so the warp's number splits into bits.
  Seat seatOf(llvm::Value* thread, llvm::Value* row_warps) const {
    Seat seat{};
    seat.lane = b_.CreateAnd(thread, word(kWarpLanes - 1));
    seat.warp = b_.CreateLShr(thread, word(5));
    seat.warp_place = b_.CreateAnd(seat.warp, b_.CreateSub(row_warps, word(1)));
    seat.team = b_.CreateLShr(seat.warp, b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, row_warps, b_.getTrue()));
    seat.pitch = b_.CreateMul(row_warps, word(strip_bytes_));
    seat.team_slots = b_.CreateMul(seat.team, argument(kSlots));
    return seat;
  }

  llvm::Value* stripNumber() {
    llvm::Value* const log = b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, argument(kRowWarps), b_.getTrue());
    teams_ = b_.CreateLShr(word(kBlockWarps), log);
    llvm::Value* const block = blockIndex(b_);
    chunk_ = b_.CreateUDiv(block, argument(kTiles));
    llvm::Value* const tile = b_.CreateSub(block, b_.CreateMul(chunk_, argument(kTiles)));
    return b_.CreateAdd(b_.CreateMul(tile, argument(kRowWarps)), seat_.warp_place);
  }

  // Loads the bounds of the team's tokens and divides their copy among threads. The loads precede the copies of
  // columns, so that their latencies overlap.
  void findPrograms() {
    const auto existing = [&](llvm::Value* program) {
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, program, argument(kPrograms));
    };
    const auto offsetOf = [&](llvm::Value* program) {
      return loadConstant(b_, b_.getInt32Ty(), b_.CreateGEP(b_.getInt32Ty(), argument(kProgramOffsets), wide(program)),
                          4);
    };
    llvm::Value* const per_warp = argument(kProgramsPerWarp);
    llvm::Value* const block_first = b_.CreateMul(b_.CreateMul(chunk_, teams_), per_warp);
    llvm::Value* const first = b_.CreateAdd(block_first, b_.CreateMul(seat_.team, per_warp));
    llvm::Value* const block_begin = offsetOf(existing(block_first));
    tokens_.begin = offsetOf(existing(first));
    tokens_.end = offsetOf(existing(b_.CreateAdd(first, per_warp)));
    llvm::Value* const window = argument(kWindow);
    llvm::Value* const block_end = offsetOf(existing(b_.CreateAdd(block_first, b_.CreateMul(teams_, per_warp))));
    // As interpreterSharedBytes() has it: the tokens and two for each team.
    llvm::Value* const needed = b_.CreateAdd(b_.CreateSub(block_end, block_begin), b_.CreateShl(teams_, 1));
    llvm::Value* const windows = b_.CreateMul(b_.CreateAdd(window, word(2)), word(kBlockWarps));
    llvm::Value* const all_at_once = b_.CreateOr(b_.CreateICmpEQ(window, word(0)), b_.CreateICmpULE(needed, windows));
    llvm::Value* const all = b_.CreateSub(tokens_.end, tokens_.begin);
    tokens_.count = b_.CreateSelect(all_at_once, all, b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, all, window));
    llvm::Value* const columns = b_.CreateAdd(argument(kStagedColumns), b_.CreateMul(teams_, argument(kSlots)));
    llvm::Value* const before = b_.CreateSelect(
        all_at_once, b_.CreateAdd(b_.CreateSub(tokens_.begin, block_begin), b_.CreateShl(seat_.team, 1)),
        b_.CreateMul(seat_.warp, b_.CreateAdd(window, word(2))));
    tokens_.to = b_.CreateAdd(b_.CreateMul(columns, seat_.pitch), bytesOfTokens(before));
    const auto inTeam = [&](llvm::Value* warps) {
      return b_.CreateShl(b_.CreateSelect(all_at_once, warps, word(0)), 5);
    };
    tokens_.thread = b_.CreateAdd(inTeam(seat_.warp_place), seat_.lane);
    tokens_.threads = b_.CreateAdd(inTeam(b_.CreateSub(argument(kRowWarps), word(1))), word(kWarpLanes));
  }

  // for (i = first; i < end; i += step) body(i); returns the back edge.
  template <class Body>
  llvm::BranchInst* forEach(llvm::Value* first, llvm::Value* end, llvm::Value* step, const Body& body) const {
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
    llvm::BranchInst* const back = b_.CreateBr(header);
    b_.SetInsertPoint(exit);
    return back;
  }

  // A thread copies what it and the threads with the same index in the other teams will read; each team copies a share
  // of the columns.
  void copyColumns() const {
    llvm::Type* const element = lowering_.elementType();
    const auto element_bytes = static_cast<unsigned>(bytesOf(options_.precision));
    const unsigned width = 16 / element_bytes;
    std::vector<llvm::Value*> sources;  // of the thread's rows, in elements from the start of the column
    for (unsigned k = 0; k < options_.rows_per_thread; ++k) {
      sources.push_back(options_.strided_columns
                            ? b_.CreateMul(strip_.existingRow(k), argument(kRowStride))
                            : b_.CreateAdd(strip_.existingRowGroup(k / kLaneRows), b_.getInt64(k % kLaneRows)));
    }
    forEach(seat_.team, argument(kStagedColumns), teams_, [&](llvm::Value* staged) {
      llvm::Value* const number =
          loadConstant(b_, b_.getInt32Ty(), b_.CreateGEP(b_.getInt32Ty(), argument(kColumnMap), wide(staged)), 4);
      llvm::Value* const column =
          b_.CreateGEP(element, argument(kColumns), b_.CreateMul(wide(number), argument(kColumnStride)));
      llvm::Value* const to = b_.CreateAdd(b_.CreateMul(staged, seat_.pitch), place_);
      const unsigned step = options_.strided_columns ? 1 : width;
      for (unsigned k = 0; k < options_.rows_per_thread; k += step) {
        const unsigned offset = k / width * kAccessStride + k % width * element_bytes;
        copyAsync(sharedAt(b_.CreateAdd(to, word(offset))), b_.CreateGEP(element, column, sources[k]),
                  step * element_bytes);
      }
    });
  }

  // Asynchronous where the architecture has cp.async: all copies are issued before the first completes.
  void copyAsync(llvm::Value* to, llvm::Value* from, unsigned bytes) const {
    if (!is_async_) {
      auto* const type = llvm::FixedVectorType::get(b_.getInt32Ty(), bytes / 4);
      b_.CreateAlignedStore(loadConstant(b_, type, from, bytes), to, llvm::Align(bytes));
      return;
    }
    llvm::Type* const word_type = b_.getInt32Ty();
    auto* const type = llvm::FunctionType::get(b_.getVoidTy(), {word_type, from->getType()}, false);
    auto* const copy = llvm::InlineAsm::get(
        type, fmt::format("cp.async.{}.shared.global [$0], [$1], {};", bytes == 16 ? "cg" : "ca", bytes),
        "r,l,~{memory}", true);
    b_.CreateCall(type, copy, {b_.CreatePtrToInt(to, word_type), from});
  }

  // Emits the copy of the tokens and of the two after them. Returns the loop's back edge.
  llvm::BranchInst* copyTokens(const Seat& seat, const TokenCopy& copy) const {
    llvm::Value* const last = b_.CreateAdd(copy.begin, copy.count);
    BasicBlock* const write = newBlock("behind");
    BasicBlock* const next = newBlock("tokens");
    b_.CreateCondBr(b_.CreateICmpULT(copy.thread, word(2)), write, next);
    b_.SetInsertPoint(write);
    const auto handler = [&](Handler::Kind kind) { return word(static_cast<std::uint32_t>(table_.find(kind, 0))); };
    llvm::Value* const is_first = b_.CreateICmpEQ(copy.thread, word(0));
    llvm::Value* const goes_on = b_.CreateAnd(is_first, b_.CreateICmpNE(last, copy.end));
    llvm::Value* const code =
        b_.CreateSelect(goes_on, handler(Handler::Kind::kNextWindow), handler(Handler::Kind::kHalt));
    storeToken(b_.CreateAdd(copy.to, bytesOfTokens(b_.CreateAdd(copy.count, copy.thread))), code,
               b_.CreateSelect(is_first, last, copy.end), lowering_.literal(0));
    b_.CreateBr(next);
    b_.SetInsertPoint(next);
    llvm::Value* const bias = b_.CreateSub(copy.to, bytesOfTokens(copy.begin));
    return forEach(b_.CreateAdd(copy.begin, copy.thread), last, copy.threads,
                   [&](llvm::Value* number) { copyToken(seat, number, bias); });
  }

  // The numbers of columns and slots become byte offsets, and parameters their values. `number` passes through assembly
  // so that LLVM keeps one loop counter instead of one for each address.
  void copyToken(const Seat& seat, llvm::Value* number, llvm::Value* bias) const {
    auto* const token_type = llvm::FixedVectorType::get(b_.getInt32Ty(), 2);
    number = opaque(number);
    llvm::Value* const token =
        loadConstant(b_, token_type, b_.CreateGEP(token_type, argument(kTokens), wide(number)), 8);
    llvm::Value* const code = b_.CreateExtractElement(token, std::uint64_t{0});
    llvm::Value* const operand = b_.CreateExtractElement(token, std::uint64_t{1});
    llvm::Value* const kind = b_.CreateLShr(code, word(DeviceToken::kArgumentShift));
    llvm::Value* const is_parameter = b_.CreateICmpEQ(kind, word(DeviceToken::kParameter));
    llvm::Value* const value = parameterWhere(is_parameter, operand);
    llvm::Value* argument =
        b_.CreateSelect(b_.CreateICmpEQ(kind, word(DeviceToken::kColumn)), placeOfColumn(seat, operand), operand);
    if (!hasValueBehindToken(options_.precision)) {
      argument = b_.CreateSelect(is_parameter, b_.CreateBitCast(value, b_.getInt32Ty()), argument);
    }
    llvm::Value* const column =
        b_.CreateAnd(b_.CreateLShr(code, word(DeviceToken::kColumnShift)), word(DeviceToken::kColumnMask));
    llvm::Value* const placed = b_.CreateOr(b_.CreateAnd(code, word(DeviceToken::kHandlerMask)),
                                            b_.CreateShl(placeOfColumn(seat, column), word(DeviceToken::kColumnShift)));
    storeToken(b_.CreateAdd(bias, bytesOfTokens(number)), placed, argument, value);
  }

  llvm::Value* placeOfColumn(const Seat& seat, llvm::Value* number) const {
    llvm::Value* const slot = b_.CreateICmpUGE(number, argument(kStagedColumns));
    return b_.CreateMul(b_.CreateAdd(number, b_.CreateSelect(slot, seat.team_slots, word(0))), seat.pitch);
  }

  // Without parameters the pointer may be null, so it is read only for tokens with a parameter.
  llvm::Value* parameterWhere(llvm::Value* condition, llvm::Value* index) const {
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

  void storeToken(llvm::Value* offset, llvm::Value* code, llvm::Value* argument, llvm::Value* value) const {
    llvm::Value* packed = llvm::PoisonValue::get(llvm::FixedVectorType::get(b_.getInt32Ty(), 2));
    packed = b_.CreateInsertElement(packed, code, std::uint64_t{0});
    packed = b_.CreateInsertElement(packed, argument, std::uint64_t{1});
    b_.CreateAlignedStore(packed, sharedAt(offset), llvm::Align(8));
    if (hasValueBehindToken(options_.precision))
      b_.CreateAlignedStore(value, sharedAt(b_.CreateAdd(offset, word(8))), llvm::Align(8));
  }

  const HandlerTable& table_;
  const DeviceOptions& options_;
  Lowering& lowering_;
  llvm::IRBuilder<>& b_;
  llvm::Function* kernel_;
  llvm::GlobalVariable& shared_;
  bool is_async_;  ///< the architecture copies from global to shared memory without registers
  unsigned strip_bytes_;
  unsigned token_bytes_;
  Seat seat_;
  llvm::Value *teams_ = nullptr, *chunk_ = nullptr;
  Strip strip_;
  llvm::Value* place_ = nullptr;
  TokenCopy tokens_{};  ///< the warp's first copy
};

std::vector<llvm::Type*> InterpreterStage::parameterTypes(llvm::IRBuilder<>& builder,
                                                          const std::optional<LossSpec>& loss) {
  llvm::Type* const pointer = globalPointer(builder.getContext());
  llvm::Type* const size = builder.getInt64Ty();
  llvm::Type* const word = builder.getInt32Ty();
  std::vector<llvm::Type*> types = {pointer, size, size, size, pointer, pointer, pointer, pointer,
                                    word,    word, word, word, word,    word,    word};
  appendResultTypes(types, builder, loss);
  return types;
}

InterpreterStage::State::State(const HandlerTable& table, const DeviceOptions& options, Lowering& lowering,
                               llvm::GlobalVariable& shared)
    : table_(table),
      options_(options),
      lowering_(lowering),
      b_(lowering.builder()),
      kernel_(b_.GetInsertBlock()->getParent()),
      shared_(shared),
      is_async_(architectureOf(options.arch).has_async_copies),
      strip_bytes_(kWarpLanes * options.rows_per_thread * static_cast<unsigned>(bytesOf(options.precision))),
      token_bytes_(sharedTokenBytes(options.precision)),
      seat_(seatOf(threadIndex(b_), argument(kRowWarps))),
      strip_(lowering, options, argument(kRowCount), stripNumber()) {
  place_ = b_.CreateAdd(b_.CreateMul(seat_.warp_place, word(strip_bytes_)), b_.CreateShl(strip_.lane(), 4));
}

InterpreterStage::InterpreterStage(const HandlerTable& table, const DeviceOptions& options, Lowering& lowering,
                                   llvm::GlobalVariable& shared)
    : state_(std::make_unique<State>(table, options, lowering, shared)) {}
InterpreterStage::~InterpreterStage() = default;

void InterpreterStage::run() { state_->run(); }
const Strip& InterpreterStage::strip() const { return state_->strip_; }
llvm::Value* InterpreterStage::place() const { return state_->place_; }
llvm::Value* InterpreterStage::firstToken() const { return state_->tokens_.to; }
llvm::Value* InterpreterStage::copyNextWindow(llvm::Value* begin, llvm::Value* end, llvm::Value* counter) const {
  return state_->copyNextWindow(begin, end, counter);
}

}  // namespace srjit
