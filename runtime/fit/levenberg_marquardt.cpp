#include "runtime/fit/levenberg_marquardt.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace srjit::fit {
namespace {

/// Nielsen's tau. The scaled columns have length 1.
constexpr double kFirstDamping = 1e-3;
/// The scales of a start, by those of the best linear parameters, at most.
constexpr double kMostStartScale = 1e8;
/// No step is left above.
constexpr double kMostDamping = 1e20;
/// Of a first step that was rejected, the next is at least this share, and just this if the loss is not finite there.
constexpr double kLeastShare = 0.25;
/// Linear parameters are near the best if these would lower the loss by no more than this share.
constexpr double kSettledShare = 0.1;
/// Rounding can leave them far from it after one pass, where J'J is ill-conditioned.
constexpr unsigned kMostSettlings = 2;
/// By how many times itself a step may change a parameter that is not linear: far from the start, exponentials
/// overflow.
constexpr double kLongestStep = 3;

// Sums of terms with errors of a unit of the last place give pivots with somewhat larger errors.
double pivotThreshold(Precision precision) { return isDouble(precision) ? 1e-13 : 1e-7; }

std::pmr::vector<std::uint32_t> linearFirst(std::span<const std::uint32_t> linear, std::size_t count,
                                            std::pmr::memory_resource* memory) {
  std::pmr::vector<std::uint32_t> order(memory);
  order.reserve(count);
  order.assign(linear.begin(), linear.end());
  for (std::uint32_t i = 0; i < count; ++i) {
    if (std::ranges::find(linear, i) == linear.end()) order.push_back(i);
  }
  return order;
}

double sumOfSquares(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

}  // namespace

ParameterFit::ParameterFit(std::span<const double> start, std::span<const std::uint32_t> linear, Precision precision,
                           const FitOptions& options, Scale scale, std::pmr::memory_resource* memory)
    : iterations_(options.iterations),
      loss_tolerance_(options.loss_tolerance),
      step_tolerance_(std::max(options.step_tolerance, 2 * lastPlace(precision))),
      pivot_threshold_(pivotThreshold(precision)),
      linear_(linear.size()),
      order_(linearFirst(linear, start.size(), memory)),
      current_(start.size(), memory),
      trial_(start.size(), memory),
      best_(start.size(), memory),
      trial_in_order_(start.begin(), start.end(), memory),
      best_in_order_(start.begin(), start.end(), memory),
      cholesky_(start.size(), memory),
      solution_(start.size(), memory),
      step_(start.size(), memory),
      scales_(start.size(), memory),
      was_independent_(start.size(), memory),
      added_(start.size(), memory),
      least_decrease_(std::max(options.loss_tolerance, 2 * lastPlace(precision))),
      damping_(kFirstDamping),
      growth_(2),
      has_scale_(scale == Scale::kLastTwo) {
  for (std::size_t i = 0; i < order_.size(); ++i) trial_.parameters[i] = start[order_[i]];
  best_.loss = std::numeric_limits<double>::infinity();
  if (options.iterations == 0) status_ = FitStatus::kIterations;
}

void ParameterFit::take(std::span<const double> sums) {
  ++passes_;
  const bool is_finite = readTrial(sums);
  if (is_finite) {
    keepBest();
    project();
  }
  if (is_at_start_) {
    if (is_finite && proposesScale()) return;
    is_at_start_ = false;
    if (is_finite) return acceptStart();
    status_ = FitStatus::kNotFinite;
    return;
  }
  if (!is_finite) return reject(false);
  if (!trial_.is_settled && settlings_ < kMostSettlings && trial_.projected() < current_.value()) {
    return proposeSettled(trial_);
  }
  trial_.value() < current_.value() ? accept() : reject(true);
}

bool ParameterFit::readTrial(std::span<const double> sums) {
  const std::size_t count = order_.size();
  trial_.loss = sums[0];
  for (std::size_t i = 0; i < count; ++i) trial_.gradient[i] = sums[1 + order_[i]];
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      const std::size_t row = std::min(order_[i], order_[j]), column = std::max(order_[i], order_[j]);
      // The rows before, less the triangle that they lack.
      trial_.gram[triangleIndex(i, j)] = sums[1 + count + row * count - triangleSize(row) + column];
    }
  }
  return std::ranges::all_of(sums, [](double sum) { return std::isfinite(sum); });
}

void ParameterFit::keepBest() {
  if (!(trial_.loss < best_.loss)) return;
  best_ = trial_;
  std::ranges::copy(trial_in_order_, best_in_order_.begin());
}

// What the sums tell of the best linear parameters.
void ParameterFit::project() {
  std::ranges::fill(added_, 0);
  cholesky_.factor(trial_.gram, added_, pivot_threshold_);
  cholesky_.forward(trial_.gradient, solution_);
  trial_.linear_gain = sumOfSquares(std::span(solution_).first(linear_));
  settlingStep();
  trial_.is_settled = linear_ == 0 || trial_.linear_gain <= kSettledShare * trial_.projected() ||
                      lengthOf(step_, trial_) <= step_tolerance_ * lengthOf(trial_.parameters, trial_);
}

/// The step to the best linear parameters.
void ParameterFit::settlingStep() {
  std::ranges::fill(step_, 0);
  std::copy_n(solution_.begin(), linear_, step_.begin());
  cholesky_.backward(std::span(step_).first(linear_));
}

/// If a and b alone lower the loss, and the linear parameters will not be tried or lower it less, they are the next
/// trial.
bool ParameterFit::proposesScale() {
  if (!std::exchange(has_scale_, false)) return false;
  const std::size_t count = order_.size();
  const auto placeOf = [&](std::size_t parameter) {
    return static_cast<std::size_t>(std::ranges::find(order_, parameter) - order_.begin());
  };
  const std::size_t a = placeOf(count - 2), b = placeOf(count - 1);
  const double aa = trial_.gram[triangleIndex(a, a)], bb = trial_.gram[triangleIndex(b, b)];
  const double ab = trial_.gram[triangleIndex(std::max(a, b), std::min(a, b))];
  const double determinant = aa * bb - ab * ab;
  // What is constant adds nothing to a.
  const bool is_constant = !(determinant > pivot_threshold_ * aa * bb);
  const double of_b =
      is_constant ? -trial_.parameters[b] : (trial_.gradient[b] * aa - trial_.gradient[a] * ab) / determinant;
  const double of_a = (trial_.gradient[a] - of_b * ab) / aa;
  const double gain = 2 * (of_a * trial_.gradient[a] + of_b * trial_.gradient[b]) -
                      (of_a * (of_a * aa + 2 * of_b * ab) + of_b * of_b * bb);
  if (!(gain > least_decrease_ * trial_.loss) || (gain <= trial_.linear_gain && !trial_.is_settled)) return false;
  std::ranges::fill(step_, 0);
  step_[a] = of_a;
  step_[b] = of_b;
  propose(trial_);
  return true;
}

void ParameterFit::acceptStart() {
  std::swap(current_, trial_);
  accepted();
  if (!done() && !current_.is_settled) return proposeSettled(current_);
  if (!done()) proposeStep();
}

void ParameterFit::accept() {
  has_stepped_ = true;
  if (predicted_ > 0) {
    const double excess = 2 * (current_.value() - trial_.value()) / predicted_ - 1;
    damping_ *= std::max(1.0 / 3, 1 - excess * excess * excess);
  } else if (predicted_ == 0) {
    // With linear parameters far from the best, columns may be so long that no step would be left.
    for (std::size_t i = linear_; i < scales_.size(); ++i) {
      scales_[i] = std::min(scales_[i], kMostStartScale * cholesky_.remainder(trial_.gram, i, linear_));
    }
  }
  growth_ = 2;
  std::swap(current_, trial_);
  accepted();
  if (!done()) proposeStep();
}

void ParameterFit::accepted() {
  for (std::size_t i = linear_; i < scales_.size(); ++i) {
    scales_[i] = std::max(scales_[i], cholesky_.remainder(current_.gram, i, linear_));
    if (!cholesky_.isDependent(i)) was_independent_[i] = 1;
  }
  if (converges()) {
    status_ = FitStatus::kConverged;
  } else if (cholesky_.rank() == 0) {
    status_ = FitStatus::kSingular;
  }
}

// Before the step, so that a pass is saved.
bool ParameterFit::converges() {
  if (order_.empty()) return true;
  // Of squares, that is so where the loss is 0.
  if (std::ranges::all_of(current_.gradient, [](double slope) { return slope == 0; }) && current_.loss == 0)
    return true;
  if (cholesky_.rank() == 0) return false;
  // An undamped step leaves out parameters that depend on others here, but did not before: damped steps may lead away.
  for (std::size_t i = linear_; i < scales_.size(); ++i) {
    if (cholesky_.isDependent(i) && was_independent_[i] != 0) return is_negligible_;
  }
  if (sumOfSquares(solution_) <= loss_tolerance_ * std::fabs(current_.loss)) return true;
  std::ranges::copy(solution_, step_.begin());
  cholesky_.backward(step_);
  return isSmall(step_);
}

bool ParameterFit::isSmall(std::span<const double> step) const {
  return lengthOf(step, current_) <= step_tolerance_ * lengthOf(current_.parameters, current_);
}

void ParameterFit::reject(bool is_finite) {
  if (is_negligible_ || damping_ > kMostDamping) {
    status_ = FitStatus::kNoProgress;
    return;
  }
  damping_ *= growth_;
  growth_ *= 2;
  if (!has_stepped_) shorten((is_finite ? shareOfStep() : kLeastShare) * step_length_);
  proposeStep();
}

// The first damping is a guess: Nielsen's factors would need a pass each until it is of the size of the columns.
void ParameterFit::shorten(double longest) {
  solveDamped();
  while (dampedLength(step_) > longest && damping_ < kMostDamping) {
    damping_ *= 2;
    solveDamped();
  }
}

/// Where on the step the parabola is least that has the losses at its ends and the slope at its begin.
double ParameterFit::shareOfStep() const {
  const double rise = trial_.value() - current_.value();
  return std::max(kLeastShare, slope_ / (2 * (rise + slope_)));
}

void ParameterFit::proposeSettled(const Point& from) {
  settlingStep();
  ++settlings_;
  propose(from);
}

void ParameterFit::proposeStep() {
  solveDamped();
  while (isTooLong(step_) && damping_ < kMostDamping) {
    damping_ *= 2;
    solveDamped();
  }
  step_length_ = dampedLength(step_);
  double descent = 0;
  for (std::size_t i = 0; i < step_.size(); ++i) descent += step_[i] * current_.gradient[i];
  slope_ = 2 * descent;
  predicted_ = damping_ * step_length_ * step_length_ + descent - (current_.is_settled ? current_.linear_gain : 0);
  is_negligible_ = isSmall(step_) || predicted_ <= least_decrease_ * std::fabs(current_.loss);
  settlings_ = 0;
  propose(current_);
}

void ParameterFit::solveDamped() {
  for (std::size_t i = linear_; i < added_.size(); ++i) added_[i] = damping_ * scales_[i];
  cholesky_.factor(current_.gram, added_, pivot_threshold_);
  cholesky_.forward(current_.gradient, step_);
  cholesky_.backward(step_);
}

void ParameterFit::propose(const Point& from) {
  if (passes_ >= iterations_) {
    status_ = FitStatus::kIterations;
    return;
  }
  for (std::size_t i = 0; i < order_.size(); ++i) {
    trial_.parameters[i] = from.parameters[i] + step_[i];
    trial_in_order_[order_[i]] = trial_.parameters[i];
  }
}

// By how much a step changes the predictions, if the columns are orthogonal.
double ParameterFit::lengthOf(std::span<const double> step, const Point& at) const {
  double sum = 0;
  for (std::size_t i = 0; i < step.size(); ++i) sum += at.gram[triangleIndex(i, i)] * step[i] * step[i];
  return std::sqrt(sum);
}

bool ParameterFit::isTooLong(std::span<const double> step) const {
  for (std::size_t i = linear_; i < step.size(); ++i) {
    const double size = std::fabs(current_.parameters[i]);
    if (size > 0 && std::fabs(step[i]) > kLongestStep * size) return true;
  }
  return false;
}

double ParameterFit::dampedLength(std::span<const double> step) const {
  double sum = 0;
  for (std::size_t i = linear_; i < step.size(); ++i) sum += scales_[i] * step[i] * step[i];
  return std::sqrt(sum);
}

void ParameterFit::standardErrors(std::size_t rows, std::span<double> errors) {
  std::ranges::fill(errors, std::numeric_limits<double>::quiet_NaN());
  if (!std::isfinite(best_.loss)) return;
  std::ranges::fill(added_, 0);
  cholesky_.factor(best_.gram, added_, pivot_threshold_);
  if (rows <= cholesky_.rank()) return;
  const double variance = best_.loss / static_cast<double>(rows - cholesky_.rank());
  for (std::size_t i = 0; i < order_.size(); ++i) {
    errors[order_[i]] = std::sqrt(variance * cholesky_.inverseDiagonal(i, step_));
  }
}

}  // namespace srjit::fit
