#include "runtime/evaluation/conditioning.h"

#include <algorithm>
#include <cmath>

namespace srjit {
namespace {

/// The square of a mean in variances, at most: subtracting the mean then costs a sum of squares four bits.
constexpr double kMostCondition = 16;
/// Of the mean's last place: a standard deviation that is rounding.
constexpr double kMeanRoundings = 2;

/// What keeps squares in the range of a precision.
struct SquareRange {
  double least;       ///< mean square whose significant terms are all normal
  int step;           ///< binary exponent of a factor that takes any number whose square is not normal to one whose is
  int most_exponent;  ///< of a factor
};

constexpr SquareRange squareRange(Precision precision) {
  return precision == Precision::kF32 ? SquareRange{0x1p-100, 96, 126} : SquareRange{0x1p-950, 768, 1022};
}

Conditioning inRange(const SquareRange& range, int sign) { return {.factor = std::ldexp(1.0, sign * range.step)}; }

/// About a number near the mean, which is multiplied by the power of two that makes it about 1.
std::optional<Conditioning> about(double mean, const SquareRange& range, Precision precision) {
  const double centre = roundTo(precision, mean);
  if (centre == 0 || !std::isfinite(centre)) return {};
  const double factor = std::ldexp(1.0, std::clamp(-std::ilogb(centre), -range.most_exponent, range.most_exponent));
  return Conditioning{.factor = factor, .offset = -centre * factor};
}

}  // namespace

std::optional<Conditioning> betterConditioning(LossSums& sums, const Conditioning& now, Precision precision) {
  const SquareRange range = squareRange(precision);
  const double mean = sums.terms / sums.weights, square = sums.more_terms[0] / sums.weights;
  const bool is_first = now == Conditioning{};
  if (!std::isfinite(mean) || !std::isfinite(square)) {
    const bool has_nan = std::isnan(mean) && std::isnan(square);
    return is_first && !has_nan ? std::optional(inRange(range, -1)) : std::nullopt;
  }
  if (is_first && square < range.least) return inRange(range, 1);
  const double variance = square - mean * mean;
  const bool is_accurate = mean * mean <= kMostCondition * variance;
  const double deviation = std::sqrt(is_accurate ? variance : square);  // at most
  sums.is_constant = deviation <= kMeanRoundings * lastPlace(precision) * std::fabs(mean - now.offset);
  if (is_accurate || sums.is_constant) return {};
  const std::optional<Conditioning> next = about((mean - now.offset) / now.factor, range, precision);
  return next == now ? std::nullopt : next;
}

}  // namespace srjit
