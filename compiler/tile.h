// The rows of one thread block, and what device kernels do with them: loads, stores and sums of a loss.
#pragma once

#include <optional>
#include <vector>

#include "compiler/device.h"
#include "compiler/lowering.h"

namespace srjit {

/// One scalar per row of a thread, in the order of the rows.
using Rows = std::vector<llvm::Value*>;

/// Pointers of a loss kernel, in global memory.
struct LossPointers {
  llvm::Value* target;
  llvm::Value* weights;
  llvm::Value* sums;
  llvm::Value* counts;
};

/// Emits into the kernel that the lowering's builder is in; construct it in the entry block.
class Tile {
 public:
  Tile(Lowering& lowering, const DeviceOptions& options, llvm::Value* row_count);

  unsigned rowsPerThread() const { return rows_per_thread_; }
  unsigned groups() const { return rows_per_thread_ / 4; }
  llvm::Value* thread() const { return thread_; }
  /// First row of the tile, i64.
  llvm::Value* base() const { return base_; }

  /// A thread's rows of the column that begins at `column`; a group past the end reads row 0 instead.
  Rows load(llvm::Value* column) const;
  /// Writes a thread's rows to the column that begins at `column`, except groups past the end.
  void store(llvm::Value* column, const Rows& rows) const;
  /// Adds up the terms of the loss for predictions of `root` (i64) and writes the sums of the tile's groups.
  void storeLoss(const LossSpec& spec, const LossPointers& pointers, llvm::Value* root, const Rows& predictions) const;

 private:
  llvm::Value* groupRow(unsigned group) const { return group_rows_[group]; }
  llvm::Value* shuffle(llvm::Value* value, unsigned lane_mask) const;
  llvm::Value* sumLanes(std::vector<llvm::Value*> groups) const;

  Lowering& lowering_;
  llvm::IRBuilder<>& b_;
  unsigned rows_per_thread_;
  llvm::Value* row_count_;
  llvm::Value* thread_;
  llvm::Value* base_;
  std::vector<llvm::Value*> group_rows_;  ///< first row of each group of the thread
  std::vector<llvm::Value*> in_range_;    ///< whether that row exists
};

/// The i64 product of two unsigned integers of any width.
llvm::Value* wideProduct(llvm::IRBuilder<>& builder, llvm::Value* x, llvm::Value* y);

}  // namespace srjit
