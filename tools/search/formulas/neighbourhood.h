// Where a formula is to have moderate values: near the rows that it was fitted to.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/numbers/intervals.h"
#include "tools/search/grammar.h"
#include "tools/search/rows.h"

namespace srjit::search {

/// A column's side of the box below.
Interval widened(const Interval& range);

/// The box of the columns, each widened by a tenth of its range at either end; a column of one sign keeps it, since its
/// end moves to no less than a third of itself. A place of the box is near a row if it differs in no column of a
/// formula by more than n^(-1/d) of the column's range, or a tenth if that is more, where n is the number of rows that
/// are looked at and d that of the formula's columns: evenly spread rows are so far apart. Columns may depend on each
/// other, and where no row is near, such as beyond the pole of a / (b - c) for data with b > c, a formula may have any
/// value. Immutable; thread-safe.
class Neighbourhood {
 public:
  /// Of rows with a target. The box is that of all. At most kMostRows of them are looked at, at equal distances.
  explicit Neighbourhood(const DataView& rows);

  /// Whether a formula has no pole and no undefined value near a row. Intervals over sub-boxes prove it, or a place
  /// disproves it: near a row, with a value that is not finite, or off the target's range by more than three such
  /// ranges. Sub-boxes without a proof are halved, deepest first. Without either for kMostBoxes of them, or in a
  /// sub-box of a small share of the box, the formula counts as sound: intervals are wider than the values.
  bool isSound(const Expression& formula) const;

  /// Whether a formula is proved to have these trends in all of the box, and no value on the way there is infinite.
  /// Intervals of the derivatives over sub-boxes prove it. Without a proof for kMostTrendBoxes of them it is refused.
  /// A slope against the trend is overlooked, if it is about a millionth of the target's range over the column's.
  bool hasTrends(const Expression& formula, std::span<const Trend> trends) const;

 private:
  static constexpr std::size_t kMostBoxes = 256, kMostTrendBoxes = 1024, kMostRows = 512;
  struct Search;

  bool isModerate(const Interval& values) const noexcept;

  std::vector<Interval> box_;                 ///< by column
  std::vector<double> ranges_;                ///< by column
  std::vector<std::vector<double>> columns_;  ///< of the rows
  Interval moderate_;                         ///< values
};

}  // namespace srjit::search
