// What a search gives: formulas, each the most exact of its complexity or less.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "ir/expression.h"

namespace srjit::search {

/// A formula over variables and constants, without parameters.
struct Formula {
  Expression expression;
  std::size_t complexity = 0;  ///< by the search's grammar
  double loss = 0;             ///< the search's loss as it is written: in strict f64, over all rows searched
  /// Over the rows that were held out; infinite where the formula has no value; NaN if no rows were held out.
  double held_out = std::numeric_limits<double>::quiet_NaN();
};

/// The Pareto front of complexity and loss: complexities ascend, losses descend. Not thread-safe.
class Front {
 public:
  /// Losses up to `floor` are rounding: all of them are equal.
  explicit Front(double floor = -std::numeric_limits<double>::infinity()) : floor_(floor) {}

  /// Takes `formula` if none that is as simple is as exact, to a thousandth, and drops those that are now beaten in the
  /// same sense. A loss that is not finite is never taken. Gives whether it was taken.
  bool add(Formula formula);

  double floor() const noexcept { return floor_; }

  bool empty() const noexcept { return formulas_.empty(); }
  std::size_t size() const noexcept { return formulas_.size(); }
  const std::vector<Formula>& formulas() const noexcept { return formulas_; }
  /// The formula with the least loss of those with at most this complexity; null if there is none.
  const Formula* best(std::size_t complexity = static_cast<std::size_t>(-1)) const noexcept;
  /// The formula to show where only one can be: that with the least loss over held-out rows, if any, and
  /// among those within a few per cent of it the simplest. Null if the front is empty.
  const Formula* chosen() const noexcept;

 private:
  double floor_;
  std::vector<Formula> formulas_;
};

}  // namespace srjit::search
