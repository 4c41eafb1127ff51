// The first part of an interpreter kernel: assigns programs and rows to warps and copies columns and tokens to shared
// memory. kernel.h and bytecode.h define the layout of global memory.
//
// Shared memory: the staged columns, then the slots of each team, then the tokens of each team followed by two halts
// (the second is fetched while the first runs). A column or slot holds the rows of a tile, strip after strip; a strip
// is stored in the order of its reads: 16 bytes of lane 0, of lane 1, ..., so that there are no bank conflicts.
//
// With a window each warp has its own copy of its team's tokens, `window` at a time, so that no warp waits for another.
// The first of the two tokens after them is then kNextWindow, unless no more follow; its argument is the number of the
// next token, and the argument of the second is the end of the team's tokens.
#pragma once

#include <vector>

#include "compiler/interpreter/handler_table.h"
#include "compiler/lowering/operators.h"
#include "compiler/nvptx/options.h"
#include "compiler/nvptx/strip.h"

namespace srjit {

/// Emits at the insertion point of the lowering's builder; construct it in the entry block.
class InterpreterStage {
 public:
  /// The kernel's parameters.
  enum Parameter : unsigned {
    kColumns,
    kColumnStride,
    kRowStride,
    kRowCount,
    kParameters,
    kColumnMap,
    kTokens,
    kProgramOffsets,
    kPrograms,
    kProgramsPerWarp,
    kRowWarps,
    kTiles,
    kStagedColumns,
    kSlots,
    kWindow,
    kResults  ///< the first of the output parameters
  };
  static std::vector<llvm::Type*> parameterTypes(llvm::IRBuilder<>& builder, bool loss);

  InterpreterStage(const HandlerTable& table, const DeviceOptions& options, Lowering& lowering,
                   llvm::GlobalVariable& shared);

  /// Emits the copies, the block's barrier, and the exit of warps without rows.
  void run();

  const Strip& strip() const { return strip_; }
  /// Byte offset of the thread's first 16 bytes within every column and slot; the next ones are kAccessStride apart.
  llvm::Value* place() const { return place_; }
  static constexpr unsigned kAccessStride = kWarpLanes * 16;
  /// Byte offset of the warp's first token.
  llvm::Value* firstToken() const { return tokens_.to; }

  /// Emits the end of a window: the warp overwrites the tokens it has run by the next ones of [begin, end). `counter`
  /// is the byte offset after the window and the two tokens that follow it; returns the offset of the window's first
  /// token. No value of the kernel's entry is live at this point.
  llvm::Value* copyNextWindow(llvm::Value* begin, llvm::Value* end, llvm::Value* counter) const;

 private:
  llvm::Value* argument(Parameter parameter) const { return kernel_->getArg(parameter); }
  llvm::Value* word(std::uint32_t value) const { return b_.getInt32(value); }
  llvm::Value* bytesOfTokens(llvm::Value* count) const { return b_.CreateMul(count, word(token_bytes_)); }
  llvm::Value* opaque(llvm::Value* value) const;
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

  Seat seatOf(llvm::Value* thread, llvm::Value* row_warps) const;
  llvm::Value* stripNumber();
  void findPrograms();
  template <class Body>
  llvm::BranchInst* forEach(llvm::Value* first, llvm::Value* end, llvm::Value* step, const Body& body) const;
  void copyColumns() const;
  void copyAsync(llvm::Value* to, llvm::Value* from, unsigned bytes) const;
  llvm::BranchInst* copyTokens(const Seat& seat, const TokenCopy& copy) const;
  void copyToken(const Seat& seat, llvm::Value* number, llvm::Value* bias) const;
  llvm::Value* placeOfColumn(const Seat& seat, llvm::Value* number) const;
  llvm::Value* parameterWhere(llvm::Value* condition, llvm::Value* index) const;
  void storeToken(llvm::Value* offset, llvm::Value* code, llvm::Value* argument, llvm::Value* value) const;

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

}  // namespace srjit
