// The first part of an interpreter kernel: which programs and rows a warp has, and what a block copies to shared memory
// before its warps run programs. device.h and bytecode.h say what lies where in global memory.
//
// Shared memory: the staged columns, then the slots of each team, then the tokens of each team with two halts behind
// them (the second is fetched while the first runs). A column or slot holds the rows of a tile, strip after strip; a
// strip lies as its threads read it: 16 bytes of lane 0, of lane 1, ..., so that there are no bank conflicts.
#pragma once

#include <vector>

#include "compiler/device.h"
#include "compiler/lowering.h"
#include "compiler/strip.h"

namespace srjit {

/// Emits into the kernel that the lowering's builder is in; construct it in the entry block.
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
    kResults  ///< the first of those that say where outputs go
  };
  static std::vector<llvm::Type*> parameterTypes(llvm::IRBuilder<>& builder, bool loss);

  InterpreterStage(const HandlerTable& table, const DeviceOptions& options, Lowering& lowering,
                   llvm::GlobalVariable& shared);

  /// Emits the copies, waits for the block, and lets warps without rows leave.
  void run();

  const Strip& strip() const { return strip_; }
  /// Byte offset of the thread's first 16 bytes within every column and slot; the next ones are kAccessStride apart.
  llvm::Value* place() const { return place_; }
  static constexpr unsigned kAccessStride = kWarpLanes * 16;
  /// Byte offset of the team's first token.
  llvm::Value* firstToken() const { return first_token_; }

 private:
  llvm::Value* argument(Parameter parameter) const { return kernel_->getArg(parameter); }
  llvm::Value* word(std::uint32_t value) const { return b_.getInt32(value); }
  llvm::Value* wide(llvm::Value* value) const { return b_.CreateZExt(value, b_.getInt64Ty()); }
  llvm::Value* sharedAt(llvm::Value* offset) const { return b_.CreateGEP(b_.getInt8Ty(), &shared_, offset); }
  llvm::BasicBlock* newBlock(const char* name) const {
    return llvm::BasicBlock::Create(b_.getContext(), name, kernel_);
  }

  llvm::Value* stripNumber();
  void findPrograms();
  template <class Body>
  void forEach(llvm::Value* first, llvm::Value* end, llvm::Value* step, const Body& body) const;
  void copyColumns() const;
  void copyAsync(llvm::Value* to, llvm::Value* from, unsigned bytes) const;
  void copyTokens() const;
  llvm::Value* placeOfColumn(llvm::Value* number) const;
  llvm::Value* parameterWhere(llvm::Value* condition, llvm::Value* index) const;
  void storeToken(llvm::Value* index, llvm::Value* code, llvm::Value* argument, llvm::Value* value) const;

  const HandlerTable& table_;
  const DeviceOptions& options_;
  Lowering& lowering_;
  llvm::IRBuilder<>& b_;
  llvm::Function* kernel_;
  llvm::GlobalVariable& shared_;
  bool is_async_;  ///< the architecture copies from global to shared memory without registers
  unsigned strip_bytes_;
  llvm::Value *warp_place_ = nullptr, *row_warps_log_ = nullptr, *team_ = nullptr, *teams_ = nullptr, *chunk_ = nullptr;
  Strip strip_;
  llvm::Value *pitch_ = nullptr, *place_ = nullptr, *team_slots_ = nullptr;
  llvm::Value *token_begin_ = nullptr, *token_count_ = nullptr, *first_token_ = nullptr;
};

/// Bytes of a token in shared memory: its two words, and in f64 the value of its parameter.
constexpr unsigned sharedTokenBytes(Precision precision) { return precision == Precision::kF64 ? 16 : 8; }

}  // namespace srjit
