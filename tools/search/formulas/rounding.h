// Numbers that people write: what a fitted constant may stand for.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace srjit::search {

/// The simplest number within `tolerance` of `value` of those that laws have: 0, integers, fractions with small
/// denominators, and these times a power of pi from pi^-2 to pi^2, its root, or that of 2. None if there is no such
/// number.
std::optional<double> simplestNear(double value, double tolerance);

/// Numbers within `tolerance` of `value` that an exact formula may have for it, the shortest first, each once: decimals
/// of 1 to 17 digits, and simplestNear() before those of 10 digits. None if `value` is not finite.
std::vector<double> numbersNear(double value, double tolerance);

/// How long a number is to read, by its significant digits: up to 9 for decimals with up to 9, 10 for a longer
/// number that simplestNear() gives, one more than their digits for other decimals.
inline constexpr int kMostDigits = 18;
int digitsOf(double number);

/// The decimal with the fewest digits within `tolerance` of `value`: the digits that data support. None if
/// `value` is not finite.
std::optional<double> shortestNear(double value, double tolerance);

/// A physical constant (codata.def) or its negative.
struct PhysicalConstant {
  std::string_view name;
  double value;
};

/// The one nearest to `value` within `tolerance`. None also if the tolerance leaves fewer than three digits.
std::optional<PhysicalConstant> physicalNear(double value, double tolerance);

}  // namespace srjit::search
