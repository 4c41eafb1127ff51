#include "runtime/evaluation/loss_terms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "ir/token_errors.h"
#include "runtime/evaluation/loss_value.h"

namespace srjit {
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
  const std::optional<LossTerm> term = infoOf(options.kind).term;
  return options.custom || !term ? LossTuning::kUntuned : infoOf(*term).tuning;
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
  switch (options.custom || !info.term ? LossTargets::kAnyTarget : infoOf(*info.term).targets) {
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

/// What the rows of scaled losses are centred by: in the precision of kernels. The multiple of a power of two that is
/// nearest to the mean, so that samples of the same data have few centres, and so few derived programs. It is at most
/// half of a standard deviation away from the mean, by which squares are larger than those about the mean by at most a
/// quarter of the variance.
double centreOf(const Dataset::State& data) {
  double centre = data.target_mean;
  const double deviation = std::sqrt(data.target_variance);
  if (deviation > 0 && std::isfinite(deviation)) {
    const double step = powerOfTwoBelow(deviation), steps = std::nearbyint(centre / step);
    if (std::isfinite(steps)) centre = steps * step;
  }
  return roundTo(data.precision, centre);
}

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
  const std::optional<LossTerm> term = infoOf(options.kind).term;
  DerivedLoss loss{.custom = options.custom};
  loss.constants.weight_scale = data.weight_scale;
  if (options.custom) return loss;
  loss.is_scaled = !term;
  loss.term = term.value_or(LossTerm{});
  loss.constants.scale = scaleOf(options, data);
  loss.constants.tuning = tuningInUnits(options, data, loss.constants.scale);
  if (loss.is_scaled) loss.constants.target_centre = centreOf(data);
  return loss;
}

double leastDifference(const Dataset::State& data) {
  const double deviation = kLeastDifference * std::sqrt(data.target_variance);
  return deviation > 0 && std::isfinite(deviation) ? powerOfTwoBelow(deviation) : kLeastDifference;
}

}  // namespace srjit
