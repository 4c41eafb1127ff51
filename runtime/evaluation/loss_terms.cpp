#include "runtime/evaluation/loss_terms.h"

#include <cmath>
#include <string>

#include <fmt/format.h>

#include "ir/token_errors.h"

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

Status checkTuning(const LossOptions& options) {
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
      break;
    case LossTuning::kLevel:
      if (!(*options.tuning > 0 && *options.tuning < 1)) return wrong("a number between 0 and 1");
      break;
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
  if (Status valid = checkTuning(options); !valid) return valid;
  return checkTargets(options, data);
}

DerivedLoss derivedLoss(const LossOptions& options, const Dataset::State& data) {
  const std::optional<LossTerm> term = infoOf(options.kind).term;
  DerivedLoss loss{.custom = options.custom};
  if (options.custom) return loss;
  loss.is_scaled = !term;
  loss.term = term.value_or(LossTerm{});
  loss.constants.tuning = tuningOf(options, tuningOf(options));
  if (loss.is_scaled) loss.constants.target_centre = centreOf(data);
  return loss;
}

double leastDifference(const Dataset::State& data) {
  const double deviation = kLeastDifference * std::sqrt(data.target_variance);
  return deviation > 0 && std::isfinite(deviation) ? powerOfTwoBelow(deviation) : kLeastDifference;
}

}  // namespace srjit
