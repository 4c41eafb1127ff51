#include "tools/search/rows.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "ir/numbers/random.h"

namespace srjit::search {
namespace {

/// Rows, ascending, in which a column is not finite.
std::vector<std::size_t> openRows(const ColumnView& column) {
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < column.size; ++row) {
    if (!std::isfinite(valueAt(column, row))) rows.push_back(row);
  }
  return rows;
}

std::vector<double> gatherColumn(const ColumnView& column, std::span<const std::size_t> rows) {
  std::vector<double> values;
  values.reserve(rows.size());
  for (const std::size_t row : rows) values.push_back(valueAt(column, row));
  return values;
}

}  // namespace

double valueAt(const ColumnView& column, std::size_t row) {
  return column.type == Precision::kF32 ? static_cast<double>(static_cast<const float*>(column.data)[row])
                                        : static_cast<const double*>(column.data)[row];
}

DataView RowSet::view() const {
  DataView view{.columns = {columns.begin(), columns.end()}, .target = ColumnView(target), .names = names};
  if (!weights.empty()) view.weights = ColumnView(weights);
  return view;
}

double RowSet::targetMean() const noexcept {
  double mean = 0, all = 0;
  for (std::size_t r = 0; r < size(); ++r) all += weightOf(r);
  for (std::size_t r = 0; r < size(); ++r) mean += weightOf(r) / all * target[r];  // no sum of targets: it may overflow
  return mean;
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

Status checkFinite(const DataView& data) {
  struct Role {
    const ColumnView* column;
    std::string name;
  };
  std::vector<Role> roles;
  for (std::size_t c = 0; c < data.columns.size(); ++c) roles.push_back({&data.columns[c], data.names.describe(c)});
  if (data.target) roles.push_back({&*data.target, "the target"});
  if (data.weights) roles.push_back({&*data.weights, "the weights"});
  std::vector<std::size_t> all;
  const Role* first = nullptr;
  for (const Role& role : roles) {
    const std::vector<std::size_t> rows = openRows(*role.column);
    if (rows.empty()) continue;
    if (first == nullptr || rows.front() < *std::ranges::min_element(all)) first = &role;
    all.insert(all.end(), rows.begin(), rows.end());
  }
  if (first == nullptr) return okStatus();
  std::ranges::sort(all);
  const auto repeated = std::ranges::unique(all);
  all.erase(repeated.begin(), repeated.end());
  const double value = valueAt(*first->column, all.front());
  return Error{
      Errc::kInvalid,
      fmt::format("{} of {} rows {} a value that is NaN or infinite, the first {} in row {}, {}; a search needs "
                  "rows that are complete",
                  all.size(), first->column->size, all.size() == 1 ? "has" : "have",
                  std::isnan(value) ? "NaN" : fmt::format("{}", value), all.front() + 1, first->name),
      {}};
}

Interval rangeOf(const ColumnView& column) {
  Interval range{valueAt(column, 0), valueAt(column, 0)};
  for (std::size_t row = 1; row < column.size; ++row) {
    range.low = std::min(range.low, valueAt(column, row));
    range.high = std::max(range.high, valueAt(column, row));
  }
  return range;
}

std::size_t countRows(const DataView& data) noexcept {
  if (!data.weights) return data.target->size;
  std::size_t count = 0;
  for (std::size_t row = 0; row < data.weights->size; ++row) count += valueAt(*data.weights, row) > 0 ? 1 : 0;
  return count;
}

RowSet joinRows(const RowSet& first, const RowSet& second) {
  RowSet all = first;
  const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (std::size_t c = 0; c < all.columns.size(); ++c) append(all.columns[c], second.columns[c]);
  append(all.target, second.target);
  append(all.weights, second.weights);
  return all;
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
