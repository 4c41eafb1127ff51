#include "runtime/dataset.h"

#include "ir/numbers/loss_sums.h"
#include "runtime/evaluation/dataset_state.h"
#include "runtime/subtrees/columns.h"

namespace srjit {

static_assert(kRowsPerGroup == kGroupRows);

std::size_t Dataset::rows() const noexcept { return state_->rows; }
std::size_t Dataset::rowGroups() const noexcept { return state_->padded_rows / kRowsPerGroup; }
std::size_t Dataset::columns() const noexcept { return state_->columns; }

SubtreeStats Dataset::subtrees() const {
  if (state_->subtrees == nullptr) return {};
  SubtreeStats stats = state_->subtrees->stats();
  stats.bytes = stats.capacity * state_->column_stride * static_cast<std::size_t>(bytesOf(state_->precision));
  return stats;
}

}  // namespace srjit
