#include "tools/search/formulas/rounding.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include <fmt/format.h>

namespace srjit::search {
namespace {

constexpr double kDenominators[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16};
constexpr double kMostNumerator = 1000;

struct Factor {
  double value;
  double cost;  ///< how much less usual than 1
};
constexpr double kRootPi = 1 / std::numbers::inv_sqrtpi;
constexpr Factor kFactors[] = {{1, 0},
                               {std::numbers::pi, 4},
                               {std::numbers::inv_pi, 4},
                               {std::numbers::pi * std::numbers::pi, 8},
                               {std::numbers::inv_pi * std::numbers::inv_pi, 8},
                               {kRootPi, 8},
                               {std::numbers::inv_sqrtpi, 8},
                               {std::numbers::sqrt2, 8},
                               {std::numbers::inv_sqrtpi / std::numbers::sqrt2, 9}};

constexpr PhysicalConstant kPhysical[] = {
#define SRJIT_CODATA(name, value) {name, value},
#include "tools/search/formulas/codata.def"
#undef SRJIT_CODATA
};
constexpr double kThreeDigits = 5e-3;  // a relative tolerance

constexpr int kDigitsOfLaws = 10;      // a number of a law is rather meant than a decimal with this number of digits
constexpr double kSameNumber = 1e-14;  // relative difference of a fitted constant from the number that it is

/// `value` rounded to this number of significant digits.
double decimalOf(double value, int digits) {
  double rounded = 0;
  const std::string text = fmt::format("{:.{}e}", value, digits - 1);
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

}  // namespace

std::optional<double> simplestNear(double value, double tolerance) {
  if (!std::isfinite(value) || !(tolerance >= 0)) return {};
  if (std::fabs(value) <= tolerance) return 0;
  std::optional<double> best;
  double least = std::numeric_limits<double>::infinity();
  for (const Factor& factor : kFactors) {
    for (const double denominator : kDenominators) {
      const double numerator = std::rint(value / factor.value * denominator);
      if (numerator == 0 || std::fabs(numerator) > kMostNumerator) continue;
      const double number = numerator / denominator * factor.value;
      const double cost = factor.cost + std::log2(std::fabs(numerator)) + 2 * std::log2(denominator);
      if (std::fabs(number - value) > tolerance || cost >= least) continue;
      least = cost;
      best = number;
    }
  }
  return best;
}

std::vector<double> numbersNear(double value, double tolerance) {
  std::vector<double> numbers;
  if (!std::isfinite(value)) return numbers;
  const auto add = [&](double number) {
    if (std::fabs(number - value) > tolerance || std::ranges::find(numbers, number) != numbers.end()) return;
    numbers.push_back(number);
  };
  for (int digits = 1; digits <= std::numeric_limits<double>::max_digits10; ++digits) {
    if (digits == kDigitsOfLaws) {
      for (const double within : {tolerance, kSameNumber * std::fabs(value)}) {
        if (const std::optional<double> law = simplestNear(value, std::min(within, tolerance))) add(*law);
      }
    }
    add(decimalOf(value, digits));
  }
  return numbers;
}

int digitsOf(double number) {
  if (!std::isfinite(number)) return 0;
  int digits = 1;
  while (digits < std::numeric_limits<double>::max_digits10 && decimalOf(number, digits) != number) ++digits;
  if (digits < kDigitsOfLaws) return digits;
  return simplestNear(number, kSameNumber * std::fabs(number)) == number ? kDigitsOfLaws : digits + 1;
}

std::optional<PhysicalConstant> physicalNear(double value, double tolerance) {
  std::optional<PhysicalConstant> nearest;
  if (!(tolerance <= kThreeDigits * std::fabs(value))) return nearest;
  for (const auto& [name, size] : kPhysical) {
    const double difference = std::fabs(std::fabs(value) - size);
    if (!(difference <= tolerance)) continue;
    nearest = {name, std::copysign(size, value)};
    tolerance = difference;
  }
  return nearest;
}

std::optional<double> shortestNear(double value, double tolerance) {
  if (!std::isfinite(value)) return {};
  if (std::fabs(value) <= tolerance) return 0;
  for (int digits = 1; digits < std::numeric_limits<double>::max_digits10; ++digits) {
    const double rounded = decimalOf(value, digits);
    if (std::fabs(rounded - value) <= tolerance) return rounded;
  }
  return value;
}

}  // namespace srjit::search
