// Facts by intervals and by functions.def: ranges of values, as far as forms of formulas depend on signs. In f64 with
// rounding to nearest, so a bound may be off by rounding.
#pragma once

#include <cmath>
#include <optional>

#include "passes/shorten/normal_form.h"

namespace srjit {

inline constexpr Interval kEverything{-HUGE_VAL, HUGE_VAL};

inline bool isWhole(double x) noexcept { return std::rint(x) == x; }
inline bool isEven(double x) noexcept { return isWhole(x / 2); }
inline bool isOdd(double x) noexcept { return isWhole(x) && !isEven(x); }

Interval sumOf(const Interval& a, const Interval& b) noexcept;
Interval productOf(const Interval& a, const Interval& b) noexcept;
Interval powerOf(const Interval& base, double exponent) noexcept;
/// The values of a function over operands that are, the first one, in `operand`.
Interval valuesOf(Op op, const Interval& operand) noexcept;

/// Where outer(inner(u)) = u; none if nowhere.
std::optional<Interval> domainOfInverse(Op outer, Op inner) noexcept;

}  // namespace srjit
