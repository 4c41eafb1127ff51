// The values of an expression over a box: interval arithmetic with outward rounding.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "ir/expression.h"

namespace srjit {

/// All numbers from `low` to `high`, which may be infinite, and NaN if `may_be_nan`. Zeros of both signs are one
/// number. With low > high it is only NaN.
struct Interval {
  double low = 0, high = 0;
  bool may_be_nan = false;

  /// Whether every value is a finite number.
  bool isFinite() const noexcept { return !may_be_nan && std::isfinite(low) && std::isfinite(high); }
};

/// An interval that has every value of an operator, as strict f64 computes it, for operands in these intervals.
Interval intervalOf(Op op, std::span<const Interval> operands);

/// An interval that has every value of the expression, as strict f64 computes it, for variables in these intervals
/// (R. E. Moore, R. B. Kearfott, M. J. Cloud, "Introduction to Interval Analysis", 2009). Every operator runs its row
/// of the table; each operation's ends are moved outwards, by one number for those of IEEE 754, and by the error bound
/// of functions.def for others. Each occurrence of a variable counts as a variable of its own, so the interval is wider
/// than the values are; it narrows with the box. A pole within the box gives an infinite end, and a value that is not
/// defined sets `may_be_nan`. `variables` and `parameters` must be at least as long as the expression's counts.
/// Thread-safe.
Interval evaluateInterval(const Expression& expression, std::span<const Interval> variables,
                          std::span<const double> parameters = {});

/// An interval that has every derivative of the expression by a variable over a box, in the sense of ops.def. All
/// numbers, where a value on the way may be infinite, or an operator may jump (OpProps::kSteps): an expression whose
/// interval has one sign is monotone in the variable, wherever the box has values. Thread-safe.
Interval evaluateIntervalSlope(const Expression& expression, std::span<const Interval> variables,
                               std::uint32_t variable);

}  // namespace srjit
