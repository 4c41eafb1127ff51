// Facts by intervals and by functions.def: ranges of values, as far as forms of formulas depend on signs. In f64 with
// rounding to nearest, so a bound may be off by rounding.
#pragma once

#include <cmath>
#include <optional>

#include "passes/shorten/normal_form.h"

namespace srjit {

inline constexpr ValueRange kEverything{-HUGE_VAL, HUGE_VAL};

inline bool isWhole(double x) noexcept { return std::rint(x) == x; }
inline bool isEven(double x) noexcept { return isWhole(x / 2); }
inline bool isOdd(double x) noexcept { return isWhole(x) && !isEven(x); }

ValueRange sumOf(const ValueRange& a, const ValueRange& b) noexcept;
ValueRange productOf(const ValueRange& a, const ValueRange& b) noexcept;
ValueRange powerOf(const ValueRange& base, double exponent) noexcept;
/// The values of a function over operands that are, the first one, in `operand`.
ValueRange valuesOf(Op op, const ValueRange& operand) noexcept;

/// Where outer(inner(u)) = u; none if nowhere.
std::optional<ValueRange> domainOfInverse(Op outer, Op inner) noexcept;

}  // namespace srjit
