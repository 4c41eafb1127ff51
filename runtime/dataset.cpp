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
  SubtreeStats all;
  for (const auto& replica : state_->replicas) {
    if (replica == nullptr) continue;
    const SubtreeStats own = Dataset(replica).subtrees();
#define SRJIT_SUBTREE_COUNTER(name, c_name) all.name += own.name;
#include "runtime/platform/counters.def"
  }
  if (state_->subtrees == nullptr) return all;
  SubtreeStats stats = state_->subtrees->stats();
  stats.bytes = stats.capacity * state_->column_stride * static_cast<std::size_t>(bytesOf(state_->precision));
  return stats;
}

}  // namespace srjit
