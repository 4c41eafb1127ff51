#include "runtime/evaluation/selection.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ir/numbers/loss_sums.h"
#include "ir/numbers/random.h"

namespace srjit {

std::size_t Selection::rows() const noexcept {
  std::size_t sum = 0;
  for (const RowRun& run : runs) sum += run.count;
  return sum;
}

std::size_t Selection::copiedFields(const Dataset::State& from) const noexcept {
  return from.columns + (from.has_target ? 1 : 0) + (from.has_weights && !weights ? 1 : 0);
}

std::vector<RowRun> sampleGroups(std::size_t rows, std::size_t groups, std::uint64_t seed) {
  const std::size_t all = roundUp(rows, kGroupRows) / kGroupRows;
  std::vector<bool> is_chosen(all);
  Random random(seed);
  for (std::size_t last = all - groups; last < all; ++last) {
    const auto drawn = static_cast<std::size_t>(random.below(last + 1));
    is_chosen[is_chosen[drawn] ? last : drawn] = true;
  }
  std::vector<RowRun> runs;
  for (std::size_t group = 0; group < all; ++group) {
    if (!is_chosen[group]) continue;
    const std::size_t first = group * kGroupRows, count = std::min(kGroupRows, rows - first);
    if (!runs.empty() && runs.back().first + runs.back().count == first) {
      runs.back().count += count;
    } else {
      runs.push_back({first, count});
    }
  }
  return runs;
}

Result<SelectedData> beginSelection(const Dataset::State& from, const Selection& selection) {
  SelectedData selected{std::make_shared<Dataset::State>(), {}};
  Dataset::State& state = *selected.state;
  state.columns = from.columns;
  state.names = from.names;
  state.device = from.device;
  state.precision = from.precision;
  state.has_target = from.has_target;
  state.has_weights = from.has_weights || selection.weights;
  state.setRows(selection.rows());
  if (selection.weights) {
    auto converted = state.convertWeights(*selection.weights);
    if (!converted) return std::move(converted).error();
    selected.weights = std::move(*converted);
  }
  return selected;
}

Result<std::shared_ptr<Dataset::State>> finishSelection(SelectedData selected, const std::function<void()>& copy) {
  Dataset::State& state = *selected.state;
  state.allocate();
  copy();
  const std::size_t last = state.has_weights ? state.fields() - 1 : state.fields();
  withZeroOf(state.precision, [&]<class T>(T) {
    T* field = state.storage.as<T>();
    for (std::size_t f = 0; f < last; ++f, field += state.column_stride) {
      std::fill(field + state.rows, field + state.padded_rows, field[state.rows - 1]);
    }
    if (!state.has_weights) return;
    if (selected.weights.size() != 0) {
      std::memcpy(field, selected.weights.data(), selected.weights.size());
    } else {
      std::fill(field + state.rows, field + state.padded_rows, T(0));
    }
  });
  if (Status valid = state.describe(state.target, state.weights); !valid) return std::move(valid).error();
  return std::move(selected.state);
}

Result<std::shared_ptr<Dataset::State>> finishOnHost(SelectedData selected, const Dataset::State& from,
                                                     const Selection& selection) {
  Dataset::State& to = *selected.state;
  const auto element = static_cast<std::size_t>(bytesOf(to.precision));
  return finishSelection(std::move(selected), [&] {
    for (std::size_t f = 0; f < selection.copiedFields(from); ++f) {
      std::byte* next = to.storage.data() + f * to.column_stride * element;
      for (const RowRun& run : selection.runs) {
        std::memcpy(next, from.column(f) + run.first * element, run.count * element);
        next += run.count * element;
      }
    }
  });
}

Result<std::shared_ptr<Dataset::State>> selectOnHost(const Dataset::State& from, const Selection& selection) {
  auto selected = beginSelection(from, selection);
  if (!selected) return std::move(selected).error();
  return finishOnHost(std::move(*selected), from, selection);
}

}  // namespace srjit
