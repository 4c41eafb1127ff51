#include "runtime/evaluation/loss_value.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "ir/token_errors.h"

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
using TermSums = std::array<T, kMomentSums>;

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

LossSums readSums(std::span<const double> sums, const LossSpec& spec, const LossConstants& constants,
                  const Dataset::State& data) {
  LossSums read{.terms = sums[0],
                .weights = data.weight_sum * constants.weight_scale,
                .rows = data.rows,
                .valid = data.rows,
                .scale = constants.scale,
                .weight_scale = constants.weight_scale};
  if (isOfMoments(spec.term)) {
    std::copy_n(sums.begin() + 1, read.more_terms.size(), read.more_terms.begin());
    const double offset = (data.target_mean - constants.target_centre) + data.target_mean_rest;
    read.targets = read.weights * offset;
    read.squared_targets = read.weights * (data.target_variance + offset * offset);
  }
  if (!spec.skip_invalid) return read;
  const std::span<const double> counts = sums.last(spec.counts());
  read.valid = countedRows(counts[0], data.rows);
  if (read.valid == read.rows) return read;
  read.weights = counts.back();
  if (spec.targetSums() > 0) {
    const std::span<const double> targets = sums.last(spec.counts() + spec.targetSums());
    read.targets = targets[0];
    read.squared_targets = targets[1];
  }
  return read;
}

bool isOfGraphs(const LossOptions& options) noexcept {
  return options.custom || !isInKernels(infoOf(options.kind).term);
}

LossSpec lossSpec(const LossOptions& options, bool weighted) {
  return {
      .term = infoOf(options.kind).term, .weighted = weighted, .skip_invalid = options.nan != NanPolicy::kPropagate};
}

double lossValue(const LossSums& sums, double target_variance, const LossOptions& options) {
  if (isRejected(sums, options)) {
    return options.custom ? std::numeric_limits<double>::infinity() : infoOf(options.kind).worst;
  }
  if (isEmpty(sums, options)) return kNoValue;
  return valueOf<double>({sums.terms, sums.more_terms[0], sums.more_terms[1]}, sums, target_variance, options);
}

std::array<double, kMomentSums> lossSlopes(const LossSums& sums, double target_variance, const LossOptions& options) {
  std::array<double, kMomentSums> slopes{kNoValue, kNoValue, kNoValue};
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

std::uint64_t validRows(const LossSums& sums, NanPolicy nan) noexcept {
  return nan == NanPolicy::kPropagate ? validRows(sums.terms, sums.rows) : sums.valid;
}

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

std::optional<Conditioning> nextConditioning(LossSums& sums, const Conditioning& now, int times, bool has_variables,
                                             Precision precision) {
  const std::optional<Conditioning> better = betterConditioning(sums, now, precision);
  // A population may have many expressions without variables.
  if (better && times == 0 && !has_variables && std::isfinite(sums.terms)) {
    sums.is_constant = true;
    return {};
  }
  return times < kMostConditionings ? better : std::nullopt;
}

namespace {

/// Differences of prediction and target below this part of the target's standard deviation count as that.
constexpr double kLeastDifference = 1e-5;

double tuningOf(const LossOptions& options, LossTuning tuning) {
  switch (tuning) {
    case LossTuning::kUntuned:
      return 0;
    case LossTuning::kThreshold:
      return options.tuning.value_or(1);
    case LossTuning::kLevel:
      return options.tuning.value_or(0.5);
  }
  __builtin_unreachable();
}

LossTuning tuningOf(const LossOptions& options) {
  return options.custom ? LossTuning::kUntuned : infoOf(infoOf(options.kind).term).tuning;
}

Status checkCustom(const Expression& custom) {
  if (custom.parameterCount() > 0) return Error{Errc::kInvalid, "a custom loss with parameters", {}};
  if (custom.variableCount() > 3) {
    return Error{
        Errc::kInvalid,
        fmt::format("a custom loss with variable x{}: expected x0 for the prediction, x1 for the target and x2 "
                    "for the weight alone",
                    custom.variableCount() - 1),
        {}};
  }
  return okStatus();
}

Status checkTargets(const LossOptions& options, const Dataset::State& data) {
  const LossInfo& info = infoOf(options.kind);
  const auto wrong = [&](double target, const char* expected) {
    return Error{Errc::kInvalid, fmt::format("{} of a target of {}: expected {}", info.name, target, expected), {}};
  };
  switch (options.custom ? LossTargets::kAnyTarget : infoOf(info.term).targets) {
    case LossTargets::kAnyTarget:
      break;
    case LossTargets::kShares:
      if (data.least_target < 0) return wrong(data.least_target, "targets from 0 to 1");
      if (data.most_target > 1) return wrong(data.most_target, "targets from 0 to 1");
      break;
    case LossTargets::kCounts:
      if (data.least_target < 0) return wrong(data.least_target, "targets that are not negative");
      break;
  }
  return okStatus();
}

/// What terms compare differences with: c in scaled units. It is finite, since derivatives multiply it by 0; a larger
/// one would change no term, since squares of differences below it overflow. 0 if the precision has no such number.
double tuningInUnits(const LossOptions& options, const Dataset::State& data, double scale) {
  const double c = tuningOf(options, tuningOf(options));
  if (tuningOf(options) != LossTuning::kThreshold) return c;
  return withZeroOf(data.precision, [&]<class T>(T) -> double {
    using Limits = std::numeric_limits<T>;
    const double scaled = std::min<double>(c * scale, Limits::max() / 2);
    return scaled < static_cast<double>(Limits::min()) ? 0 : scaled;
  });
}

/// By what terms of the loss multiply the target.
double scaleOf(const LossOptions& options, const Dataset::State& data) {
  return options.custom || !infoOf(options.kind).unit ? 1 : data.scale;
}

Status checkTuning(const LossOptions& options, const Dataset::State& data) {
  if (!options.tuning) return okStatus();
  const std::string name = options.custom ? "a custom loss" : std::string(infoOf(options.kind).name);
  const auto wrong = [&](const char* expected) {
    return Error{
        Errc::kInvalid, fmt::format("the constant {} of {}: expected {}", *options.tuning, name, expected), {}};
  };
  switch (tuningOf(options)) {
    case LossTuning::kUntuned:
      return wrong("none");
    case LossTuning::kThreshold:
      if (!(*options.tuning > 0) || std::isinf(*options.tuning)) return wrong("a finite number above 0");
      if (tuningInUnits(options, data, data.scale) == 0) {
        return wrong("a number nearer to the targets, since differences so small are 0 beside them; mae, or f64");
      }
      break;
    case LossTuning::kLevel:
      if (!(*options.tuning > 0 && *options.tuning < 1)) return wrong("a number between 0 and 1");
      break;
  }
  return okStatus();
}

// Below the least exponent, the loss of predictions that equal the target but for its last place is no normal number.
Status checkUnit(const LossOptions& options, const Dataset::State& data) {
  constexpr int kLeast = std::numeric_limits<double>::min_exponent + 2 * std::numeric_limits<double>::digits;
  constexpr int kMost = std::numeric_limits<double>::max_exponent - 24;
  const int unit = options.custom ? 0 : infoOf(options.kind).unit.value_or(0);
  const double largest = data.largestTarget();
  if (unit <= 1 || largest == 0) return okStatus();
  const int exponent = unit * std::ilogb(largest);
  if (exponent >= kLeast && exponent <= kMost) return okStatus();
  return Error{
      Errc::kInvalid,
      fmt::format("{} of targets up to {}: squares of such errors are beyond the range of f64; expected another "
                  "unit of the target, or a loss without squares of units as nmse, r2, rmse or mae",
                  infoOf(options.kind).name, largest),
      {}};
}

/// The largest power of two that is not above x, which is finite and above 0.
double powerOfTwoBelow(double x) { return std::ldexp(1.0, std::ilogb(x)); }

}  // namespace

Status checkLoss(const LossOptions& options, const Dataset::State& data, const Limits& limits) {
  if (!data.has_target) return Error{Errc::kInvalid, "a loss of data without a target", {}};
  if (options.custom) {
    if (exceeds(options.custom->size(), limits.max_nodes)) {
      return tooManyNodes(options.custom->size(), limits.max_nodes);
    }
    if (Status valid = checkCustom(*options.custom); !valid) return valid;
  }
  if (Status valid = checkTuning(options, data); !valid) return valid;
  if (Status valid = checkTargets(options, data); !valid) return valid;
  return checkUnit(options, data);
}

bool isOfGraphs(const LossOptions& options, const Dataset::State& data) noexcept {
  return isOfGraphs(options) || !data.isOrdinary();
}

DerivedLoss derivedLoss(const LossOptions& options, const Dataset::State& data) {
  DerivedLoss loss{.custom = options.custom};
  loss.constants.weight_scale = data.weight_scale;
  if (options.custom) return loss;
  loss.term = infoOf(options.kind).term;
  loss.constants.scale = scaleOf(options, data);
  loss.constants.tuning = tuningInUnits(options, data, loss.constants.scale);
  if (loss.isScaled()) loss.constants.target_centre = targetCentre(data);
  return loss;
}

// In the precision of kernels. The multiple of a power of two that is nearest to the mean, so that samples of the same
// data have few centres, and so few derived programs. It is at most half of a standard deviation away from the mean, by
// which squares are larger than those about the mean by at most a quarter of the variance.
double targetCentre(const Dataset::State& data) {
  double centre = data.target_mean;
  const double deviation = std::sqrt(data.target_variance);
  if (deviation > 0 && std::isfinite(deviation)) {
    const double step = powerOfTwoBelow(deviation), steps = std::nearbyint(centre / step);
    if (std::isfinite(steps)) centre = steps * step;
  }
  return roundTo(data.precision, centre);
}

double leastDifference(const Dataset::State& data) {
  const double deviation = kLeastDifference * std::sqrt(data.target_variance);
  return deviation > 0 && std::isfinite(deviation) ? powerOfTwoBelow(deviation) : kLeastDifference;
}

}  // namespace srjit
