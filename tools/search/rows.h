// Some rows of a table, copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/error.h"
#include "ir/numbers/intervals.h"
#include "runtime/data_view.h"

namespace srjit::search {

/// A table that owns its numbers.
struct RowSet {
  std::vector<std::vector<double>> columns;
  std::vector<double> target;
  std::vector<double> weights;  ///< empty if there are none
  ColumnNames names;

  std::size_t size() const noexcept { return target.size(); }
  double weightOf(std::size_t row) const noexcept { return weights.empty() ? 1 : weights[row]; }
  double targetMean() const noexcept;  ///< weighted
  /// Whether all rows of a weight above 0 have the same target.
  bool hasOneTarget() const noexcept;
  /// Borrowed from this.
  DataView view() const;
};

double valueAt(const ColumnView& column, std::size_t row);

/// The rows with these numbers, in their order. `data` must have a target, and such rows.
RowSet gatherRows(const DataView& data, std::span<const std::size_t> rows);

/// Errors: kInvalid if a column, the target or the weights have a NaN or an infinity, with the number of such rows and
/// the first of them. A formula has no loss on data with such rows, so a search could use none of these columns. All
/// must be equally long.
Status checkFinite(const DataView& data);

/// From the least to the largest number; there is a row.
Interval rangeOf(const ColumnView& column);

/// The rows of a weight above 0.
std::size_t countRows(const DataView& data) noexcept;

/// The rows of one set, then those of another of the same columns.
RowSet joinRows(const RowSet& first, const RowSet& second);

/// `count` different numbers below `rows`, ascending; each such set with the same probability. `count` <= `rows`.
std::vector<std::size_t> drawRows(std::size_t rows, std::size_t count, std::uint64_t seed);

}  // namespace srjit::search
