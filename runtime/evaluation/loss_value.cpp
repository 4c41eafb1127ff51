#include "runtime/evaluation/loss_value.h"

#include <cmath>
#include <limits>

namespace srjit {
namespace {

/// A number and its derivative by the sum of terms.
struct Slope {
  double value, slope;

  friend Slope operator+(Slope x, Slope y) { return {x.value + y.value, x.slope + y.slope}; }
  friend Slope operator-(Slope x, Slope y) { return {x.value - y.value, x.slope - y.slope}; }
  friend Slope operator*(Slope x, Slope y) { return {x.value * y.value, x.slope * y.value + x.value * y.slope}; }
  friend Slope operator/(Slope x, Slope y) {
    const double quotient = x.value / y.value;
    return {quotient, (x.slope - quotient * y.slope) / y.value};
  }
  friend Slope sqrt(Slope x) {
    const double root = std::sqrt(x.value);
    return {root, x.slope / (2 * root)};
  }

  Slope(double constant) : value(constant), slope(0) {}
  Slope(double v, double s) : value(v), slope(s) {}
};

}  // namespace

LossSpec lossSpec(const LossOptions& options, bool weighted) {
  return {
      .term = infoOf(options.kind).term, .weighted = weighted, .skip_invalid = options.nan != NanPolicy::kPropagate};
}

double lossValue(const LossSums& sums, double target_variance, const LossOptions& options) {
  if (options.nan == NanPolicy::kReject && sums.valid < sums.rows) return infoOf(options.kind).worst;
  if (options.nan == NanPolicy::kSkip && sums.valid == 0) return std::numeric_limits<double>::quiet_NaN();
  return withLossFormula(options.kind, target_variance,
                         [&](const auto& formula) { return formula(sums.terms, sums.terms / sums.weights); });
}

double lossSlope(const LossSums& sums, double target_variance, const LossOptions& options) {
  const bool is_rejected = options.nan == NanPolicy::kReject && sums.valid < sums.rows;
  const bool is_empty = options.nan == NanPolicy::kSkip && sums.valid == 0;
  if (is_rejected || is_empty) return std::numeric_limits<double>::quiet_NaN();
  const Slope sum(sums.terms, 1);
  return withLossFormula(options.kind, target_variance,
                         [&](const auto& formula) { return Slope(formula(sum, sum / sums.weights)).slope; });
}

void lossValues(std::span<const double> terms, double weights, double target_variance, LossKind kind,
                std::span<double> values) {
  withLossFormula(kind, target_variance, [&](const auto& formula) {
    for (std::size_t i = 0; i < terms.size(); ++i) values[i] = formula(terms[i], terms[i] / weights);
  });
}

std::uint64_t validRows(double terms, std::uint64_t rows) noexcept {
  return std::isfinite(terms) ? rows : Losses::kNotCounted;
}

}  // namespace srjit
