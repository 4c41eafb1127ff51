// The first part of an interpreter kernel: assigns programs and rows to warps and copies columns and tokens to shared
// memory. kernel.h and encoder.h define the layout of global memory.
//
// Shared memory: the staged columns, then the slots of each team, then the tokens of each team followed by two halts
// (the second is fetched while the first runs). A column or slot holds the rows of a tile, strip after strip; a strip
// is stored in the order of its reads: 16 bytes of lane 0, of lane 1, ..., so that there are no bank conflicts.
//
// Where all tokens of the block do not fit into the windows of its warps, each warp has its own copy of its team's
// tokens, `window` at a time, so that no warp waits for another. The first of the two tokens after them is then
// kNextWindow, unless no more follow; its argument is the number of the next token, and the argument of the second is
// the end of the team's tokens.
#pragma once

#include <memory>
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
  enum : unsigned {
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
  static std::vector<llvm::Type*> parameterTypes(llvm::IRBuilder<>& builder, const std::optional<LossSpec>& loss);

  InterpreterStage(const HandlerTable& table, const DeviceOptions& options, Lowering& lowering,
                   llvm::GlobalVariable& shared);
  ~InterpreterStage();

  /// Emits the copies, the block's barrier, and the exit of warps without rows.
  void run();

  const Strip& strip() const;
  /// Byte offset of the thread's first 16 bytes within every column and slot; the next ones are kAccessStride apart.
  llvm::Value* place() const;
  static constexpr unsigned kAccessStride = kWarpLanes * 16;
  /// Byte offset of the warp's first token.
  llvm::Value* firstToken() const;

  /// Emits the end of a window: the warp overwrites the tokens it has run by the next ones of [begin, end). `counter`
  /// is the byte offset after the window and the two tokens that follow it; returns the offset of the window's first
  /// token. No value of the kernel's entry is live at this point.
  llvm::Value* copyNextWindow(llvm::Value* begin, llvm::Value* end, llvm::Value* counter) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace srjit
