#include "runtime/evaluation/loss_value.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace srjit {
namespace {

/// A number and its derivative by the sum of a term.
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
  friend bool operator<(Slope x, Slope y) { return x.value < y.value; }
  friend bool operator<=(Slope x, Slope y) { return x.value <= y.value; }

  Slope(double constant) : value(constant), slope(0) {}
  Slope(double v, double s) : value(v), slope(s) {}
};

/// The sum of a term, and of those behind it.
template <class T>
using TermSums = std::array<T, kScaledTerms.size()>;

/// From the target's unit to a loss's. Steps, since a power of the scale may be no number.
template <class T>
T inDataUnits(T value, std::optional<int> unit, double scale) {
  for (int i = 0; i < unit.value_or(0); ++i) value = value / scale;
  return value;
}

/// The power of two that brings the root of a mean square near 1.
double unitOf(double sum, double weights) {
  const double root = std::sqrt(sum / weights);
  return root > 0 && std::isfinite(root) ? std::ldexp(1.0, -std::ilogb(root)) : 1;
}

/// The squared errors of a + b f with the best a and b, and the correlation, of f and z in units of their own:
/// derivatives by sums have all powers of these units, which may be beyond a double. Comparisons are false for NaN, so
/// that it stays.
template <class T>
T scaledLoss(const TermSums<T>& terms, const LossSums& rows, double target_variance, const LossInfo& info) {
  using std::sqrt;
  const double weights = rows.weights;
  const double squares = rows.squared_targets - rows.targets * (rows.targets / weights);
  const double f = unitOf(rows.more_terms[0], weights), z = unitOf(squares, weights);
  const double target = squares * z * z, target_mean = rows.targets * z / weights;
  const auto loss = [&](const T& sum, const T& correlation) {
    const T value =
        scaledLossFormula<T>(info.kind, sum / rows.weight_scale, sum / weights, correlation, target_variance * z * z);
    return inDataUnits(inDataUnits(value, info.unit, z), info.unit, rows.scale);
  };
  const T moment = terms[0] * f;
  const T spread = terms[1] * f * f - moment * (moment / weights);
  if (rows.is_constant || spread <= 0.0) return loss(target, 0.0);
  const T product = terms[2] * f * z - moment * target_mean;
  const T rest = target - product * product / spread;
  const T sum = rest < 0.0 ? T(0.0) : rest;
  const T correlation = target <= 0 ? T(0.0) : product / sqrt(spread * target);
  return loss(sum, T(1.0) < correlation ? T(1.0) : correlation < -1.0 ? T(-1.0) : correlation);
}

template <class T>
T valueOf(const TermSums<T>& terms, const LossSums& rows, double target_variance, const LossOptions& options) {
  if (options.custom) return terms[0] / rows.weights;
  const LossInfo& info = infoOf(options.kind);
  if (info.isScaled()) return scaledLoss(terms, rows, target_variance, info);
  const T value = withLossFormula(options.kind, target_variance, [&](const auto& of) {
    return T(of(terms[0] / rows.weight_scale, terms[0] / rows.weights));
  });
  return inDataUnits(value, info.unit, rows.scale);
}

bool isRejected(const LossSums& sums, const LossOptions& options) {
  return options.nan == NanPolicy::kReject && sums.valid < sums.rows;
}
bool isEmpty(const LossSums& sums, const LossOptions& options) {
  return options.nan == NanPolicy::kSkip && sums.valid == 0;
}

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

}  // namespace

bool isOfGraphs(const LossOptions& options) noexcept {
  const std::optional<LossTerm> term = infoOf(options.kind).term;
  return options.custom || !term || !isInKernels(*term);
}

LossSpec lossSpec(const LossOptions& options, bool weighted) {
  return {.term = infoOf(options.kind).term.value(),
          .weighted = weighted,
          .skip_invalid = options.nan != NanPolicy::kPropagate};
}

double lossValue(const LossSums& sums, double target_variance, const LossOptions& options) {
  if (isRejected(sums, options)) {
    return options.custom ? std::numeric_limits<double>::infinity() : infoOf(options.kind).worst;
  }
  if (isEmpty(sums, options)) return kNoValue;
  return valueOf<double>({sums.terms, sums.more_terms[0], sums.more_terms[1]}, sums, target_variance, options);
}

std::array<double, kScaledTerms.size()> lossSlopes(const LossSums& sums, double target_variance,
                                                   const LossOptions& options) {
  std::array<double, kScaledTerms.size()> slopes{kNoValue, kNoValue, kNoValue};
  if (isRejected(sums, options) || isEmpty(sums, options)) return slopes;
  for (std::size_t i = 0; i < slopes.size(); ++i) {
    TermSums<Slope> terms{sums.terms, sums.more_terms[0], sums.more_terms[1]};
    terms[i].slope = 1;
    slopes[i] = valueOf<Slope>(terms, sums, target_variance, options).slope;
  }
  return slopes;
}

double lossOfSum(const LossSums& sums, double target_variance, const LossOptions& options) {
  if (options.custom || !infoOf(options.kind).isScaled() || isRejected(sums, options) || isEmpty(sums, options)) {
    return lossValue(sums, target_variance, options);
  }
  const double value = scaledLossFormula<double>(options.kind, sums.terms / sums.weight_scale,
                                                 sums.terms / sums.weights, kNoValue, target_variance);
  return inDataUnits(value, infoOf(options.kind).unit, sums.scale);
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

std::uint64_t countedRows(double counted, std::uint64_t rows) noexcept {
  return static_cast<std::uint64_t>(std::min(std::max(0.0, counted), static_cast<double>(rows)));
}

std::uint64_t validRows(const LossSums& sums, NanPolicy nan) noexcept {
  return nan == NanPolicy::kPropagate ? validRows(sums.terms, sums.rows) : sums.valid;
}

}  // namespace srjit
