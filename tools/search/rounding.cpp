#include "tools/search/rounding.h"

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

std::optional<double> shortestNear(double value, double tolerance) {
  if (!std::isfinite(value)) return {};
  if (std::fabs(value) <= tolerance) return 0;
  for (int digits = 1; digits < std::numeric_limits<double>::max_digits10; ++digits) {
    double rounded = 0;
    const std::string text = fmt::format("{:.{}e}", value, digits - 1);
    std::from_chars(text.data(), text.data() + text.size(), rounded);
    if (std::fabs(rounded - value) <= tolerance) return rounded;
  }
  return value;
}

}  // namespace srjit::search
