// Sums of the values of roots over rows, several at once, for kernels whose loss sums predictions as they are.
#pragma once

#include <vector>

#include "compiler/nvptx/strip.h"

namespace srjit {

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
