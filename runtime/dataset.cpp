#include "runtime/dataset.h"

#include "ir/numbers/loss_sums.h"
#include "runtime/evaluation/dataset_state.h"

namespace srjit {

static_assert(kRowsPerGroup == kGroupRows);

std::size_t Dataset::rows() const noexcept { return state_->rows; }
std::size_t Dataset::rowGroups() const noexcept { return state_->padded_rows / kRowsPerGroup; }
std::size_t Dataset::columns() const noexcept { return state_->columns; }

SubtreeStats Dataset::subtrees() const {
  return state_->residence == nullptr ? SubtreeStats{} : state_->residence->subtrees();
}

}  // namespace srjit
