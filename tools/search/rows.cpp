#include "tools/search/rows.h"

#include "ir/numbers/random.h"

namespace srjit::search {
namespace {

std::vector<double> gatherColumn(const ColumnView& column, std::span<const std::size_t> rows) {
  std::vector<double> values;
  values.reserve(rows.size());
  for (const std::size_t row : rows) {
    values.push_back(column.type == Precision::kF32 ? static_cast<double>(static_cast<const float*>(column.data)[row])
                                                    : static_cast<const double*>(column.data)[row]);
  }
  return values;
}

}  // namespace

DataView RowSet::view() const {
  DataView view{.columns = {columns.begin(), columns.end()}, .target = ColumnView(target), .names = names};
  if (!weights.empty()) view.weights = ColumnView(weights);
  return view;
}

double RowSet::targetMean() const noexcept {
  double sum = 0, all = 0;
  for (std::size_t r = 0; r < size(); ++r) {
    sum += weightOf(r) * target[r];
    all += weightOf(r);
  }
  return sum / all;
}

bool RowSet::hasOneTarget() const noexcept {
  const double* first = nullptr;
  for (std::size_t r = 0; r < size(); ++r) {
    if (!(weightOf(r) > 0)) continue;
    if (first == nullptr) first = &target[r];
    if (target[r] != *first) return false;
  }
  return true;
}

RowSet gatherRows(const DataView& data, std::span<const std::size_t> rows) {
  RowSet set;
  set.target = gatherColumn(*data.target, rows);
  set.names = data.names;
  for (const ColumnView& column : data.columns) set.columns.push_back(gatherColumn(column, rows));
  if (data.weights) set.weights = gatherColumn(*data.weights, rows);
  return set;
}

std::vector<std::size_t> drawRows(std::size_t rows, std::size_t count, std::uint64_t seed) {
  // Selection sampling: D. E. Knuth, The Art of Computer Programming, volume 2, 3.4.2, algorithm S.
  std::vector<std::size_t> drawn;
  drawn.reserve(count);
  Random random(seed);
  for (std::size_t row = 0; drawn.size() < count; ++row) {
    if (random.below(rows - row) < count - drawn.size()) drawn.push_back(row);
  }
  return drawn;
}

}  // namespace srjit::search
