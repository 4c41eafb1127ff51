// The rows of one warp, with the loads, stores and sums of a loss that device kernels make of them. options.h says
// which rows they are.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "compiler/lowering/operators.h"
#include "compiler/nvptx/options.h"

namespace srjit {

inline constexpr unsigned kLaneRows = 4;  ///< adjacent rows of a row group that one lane has
static_assert(std::size_t{kWarpLanes} * kLaneRows == kGroupRows, "the lanes of a warp have one row group");

/// One scalar per row of a thread, in the order of the rows.
using Rows = std::vector<llvm::Value*>;

/// The parameters of a loss kernel: pointers to global memory, a stride in elements, and the bits of the target's
/// centre in the lowest ones of an i64, or null of a term without moments.
struct LossPointers {
  llvm::Value* target;
  llvm::Value* weights;
  llvm::Value* sums;
  llvm::Value* channel_stride;
  llvm::Value* centre;

  /// Those of a kernel whose results begin at parameter `first`.
  LossPointers(const llvm::Function& kernel, unsigned first, const LossSpec& loss);
};

/// Appends the types of the parameters of a kernel's results, as kernels.h has them.
void appendResultTypes(std::vector<llvm::Type*>& types, llvm::IRBuilder<>& builder,
                       const std::optional<LossSpec>& loss);

/// Emits at the insert point of the lowering's builder. Precondition: the block of the constructor's call dominates
/// those of all later calls.
class Strip {
 public:
  /// The strip with this number (i32) of `row_count` rows (i64).
  Strip(Lowering& lowering, const DeviceOptions& options, llvm::Value* row_count, llvm::Value* number);

  /// Row groups (ir/numbers/loss_sums.h) of the strip; a lane has kLaneRows rows of each.
  unsigned rowGroups() const { return rows_per_thread_ / kLaneRows; }
  llvm::Value* lane() const { return lane_; }
  /// The number among all row groups (i64) of row group `own` (i32) of the strip.
  llvm::Value* numberOfRowGroup(llvm::Value* own) const;
  /// Row groups of all rows (i64).
  llvm::Value* rowGroupCount() const;
  /// Whether row k of the thread exists, and whether all rows of the strip do.
  llvm::Value* exists(unsigned k) const;
  llvm::Value* allExist() const;

  /// Emits the end of a warp that has no rows; the builder goes on where others do.
  void leaveIfEmpty() const;
  /// First row that the lane has of a row group (i64), or 0 if that is past the end.
  llvm::Value* existingRowGroup(unsigned row_group) const;
  /// Row k of the thread (i64), or the last row if it is past the end.
  llvm::Value* existingRow(unsigned k) const;

  /// A thread's rows of a column of stride 1 that begins at `column`.
  Rows load(llvm::Value* column) const { return loadFrom(column, false); }
  /// The same for any stride and alignment. Rows past the end have the value of the last row.
  Rows loadStrided(llvm::Value* column, llvm::Value* row_stride) const;
  /// Writes a thread's rows to the column that begins at `column`, except row groups past the end.
  void store(llvm::Value* column, const Rows& rows) const;
  /// Adds up the terms of the loss for these predictions and writes the sums of the strip's row groups as those of
  /// output `output` (i64).
  void storeLoss(const LossSpec& spec, const LossPointers& pointers, llvm::Value* output,
                 const Rows& predictions) const;
  /// The sums over the warp's lanes of several items at once, a power of two of them, neighbours first. While more than
  /// one is left, the lanes share the work: after the step with mask m, a lane goes on with the items whose number has
  /// the lane's bit m. In the end lane l holds the sum of item l modulo their number.
  llvm::Value* sumLanes(std::vector<llvm::Value*> sums) const;

 private:
  struct ThreadSums;
  static constexpr unsigned kCountBits = 8;  ///< hold kGroupRows; the counts of four row groups fit in one register

  Rows loadFrom(llvm::Value* column, bool all_exist) const;
  llvm::Value* isCounted(const LossSpec& spec, unsigned k, llvm::Value* prediction) const;
  llvm::Value* areFinite(const Rows& predictions) const;
  std::vector<llvm::Value*> itemsOf(const LossSpec& spec, const LossPointers& pointers, llvm::Value* prediction,
                                    llvm::Value* target, llvm::Value* weight) const;
  ThreadSums sumThread(const LossSpec& spec, const LossPointers& pointers, const Rows& predictions,
                       bool all_count) const;
  void storeSums(const LossSpec& spec, const LossPointers& pointers, llvm::Value* output, const ThreadSums& sums) const;
  /// Emits what `store` does where the condition holds.
  template <class Store>
  void storeWhere(llvm::Value* condition, const Store& store) const;

  Lowering& lowering_;
  llvm::IRBuilder<>& b_;
  unsigned rows_per_thread_;
  llvm::Value* row_count_;
  llvm::Value* number_;
  llvm::Value* begin_;  ///< first row of the strip
  llvm::Value* lane_;
  std::vector<llvm::Value*> group_rows_;  ///< first row that the lane has of each row group
  std::vector<llvm::Value*> in_range_;    ///< whether that row exists
};

/// Number of the thread in its block, i32.
llvm::Value* threadIndex(llvm::IRBuilder<>& builder);
llvm::Value* blockIndex(llvm::IRBuilder<>& builder);
/// The i64 product of two unsigned integers of any width.
llvm::Value* wideProduct(llvm::IRBuilder<>& builder, llvm::Value* x, llvm::Value* y);
/// A load from memory that nobody writes while the kernel runs.
llvm::Value* loadConstant(llvm::IRBuilder<>& builder, llvm::Type* type, llvm::Value* pointer, unsigned alignment);
/// Keeps LLVM and ptxas from unrolling the loop whose back edge this branch is.
void keepRolled(llvm::BranchInst& back);
/// The value of another lane of the warp, whose number differs in the bits of `lane_mask`: 32 or 64 bits of any type.
llvm::Value* shuffleLanes(llvm::IRBuilder<>& builder, llvm::Value* value, unsigned lane_mask);

// Sums of the values of roots over rows, several at once, for kernels whose loss sums predictions as they are.

/// Whether a kernel of this loss adds the values of roots, of all rows and without weights.
constexpr bool isPlainSum(const LossSpec& spec) noexcept {
  return spec == LossSpec{LossTerm::kPrediction, false, false};
}

/// Emits at the insert point of the lowering's builder. The sums are those that Strip::storeLoss() stores, bit for bit.
/// Precondition: the block of the constructor's call dominates those of all later calls.
class PlainSums {
 public:
  /// Emits the code that does not depend on outputs.
  PlainSums(Lowering& lowering, const Strip& strip, const LossPointers& pointers);

  /// The sums of one thread's rows that exist, one per row group.
  Rows sumRows(const Rows& values) const;
  /// Adds sums of threads over the lanes and writes them, as those of output `output` (i32) and of the next ones: of
  /// several, lanes share the work. `sums` has one of sumRows() for each.
  void store(llvm::Value* output, std::vector<Rows> sums) const;

 private:
  Lowering& lowering_;
  llvm::IRBuilder<>& b_;
  const Strip& strip_;
  llvm::Value *all_exist_, *row_group_exists_;
  llvm::Value* row_groups_;  ///< of all rows, i32
  llvm::Value* to_;          ///< where the lane writes its row group of output 0
  llvm::Value* output_;      ///< which of several outputs it writes, i32
};

}  // namespace srjit
