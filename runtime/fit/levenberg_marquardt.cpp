#include "runtime/fit/levenberg_marquardt.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace srjit::fit {
namespace {

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
/// Loss of a start, over that of predictions of 0, from which linear parameters would come back with no digit.
constexpr double kFarStart = 0x1p60;
/// How many last places an evaluation of an expression may be off.
constexpr double kRoundings = 4;
/// Residuals that are so short, in last places of predictions, are those of rounding.
constexpr double kLeastResidual = 1;
/// By how much sums of doubles may differ of columns that are multiples of each other.
constexpr double kSameDirection = 1e-15;
constexpr double kInfinity = std::numeric_limits<double>::infinity(), kFixed = std::numeric_limits<double>::quiet_NaN();
/// Of an active set: one for each parameter that meets a bound, and some for those that leave it again.
constexpr std::size_t kRoundsPerParameter = 4;
/// By which share losses may differ that count as equal.
constexpr double kMostNoise = 1e-6;

// Sums of terms with errors of a unit of the last place give pivots with somewhat larger errors.
double pivotThreshold(Precision precision) { return isDouble(precision) ? 1e-13 : 1e-7; }
// With pivots below, normal equations lose a quarter of the digits of a double, or nearly all of a float.
double illThreshold(Precision precision) { return isDouble(precision) ? 1e-4 : 1e-6; }

double sumOfSquares(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

// By how much a step changes the predictions, if the columns are orthogonal.
double lengthOf(std::span<const double> step, std::span<const double> gram) {
  double sum = 0;
  for (std::size_t i = 0; i < step.size(); ++i) sum += gram[triangleIndex(i, i)] * step[i] * step[i];
  return std::sqrt(sum);
}

/// Nielsen's tau. The scaled columns have length 1.
constexpr double kFirstDamping = 1e-3;

}  // namespace

ParameterFit::ParameterFit(std::span<const double> start, std::span<const std::uint32_t> linear, bool has_scale,
                           std::span<const ParameterBounds> bounds, std::pmr::memory_resource* memory)
    : numbers_(kPerParameter * start.size() + 2 * triangleSize(start.size()), memory),
      columns_(memory),
      bounds_(memory),
      start_loss_(kInfinity),
      best_loss_(kInfinity),
      damping_(kFirstDamping),
      has_scale_(has_scale) {
  if (!std::ranges::all_of(bounds, &ParameterBounds::isNone)) {
    bounds_.resize(start.size());
    std::copy_n(bounds.begin(), std::min(bounds.size(), start.size()), bounds_.begin());
  }
  columns_.reserve(start.size());
  for (const std::uint32_t parameter : linear) {
    if (!isBounded() || bounds_[parameter].isNone()) columns_.push_back({parameter});
  }
  linear_ = columns_.size();
  for (std::uint32_t i = 0; i < start.size(); ++i) {
    if (std::ranges::find(columns_, i, &Column::parameter) == columns_.end()) columns_.push_back({i});
    nextTrial()[i] = within(i, start[i]);
  }
  std::ranges::copy(trial(), best().begin());
}

LevenbergMarquardt::LevenbergMarquardt(Precision precision, const FitOptions& options, const Rows& rows)
    : iterations_(options.iterations),
      loss_tolerance_(options.loss_tolerance),
      step_tolerance_(std::max(options.step_tolerance, 2 * lastPlace(precision))),
      least_decrease_(std::max(options.loss_tolerance, 2 * lastPlace(precision))),
      pivot_threshold_(pivotThreshold(precision)),
      ill_threshold_(illThreshold(precision)),
      last_place_(lastPlace(precision)),
      rows_(rows) {}

void LevenbergMarquardt::take(ParameterFit& fit, std::span<const double> sums) {
  makeRoom(fit.size());
  fit_ = &fit;
  takeTrial(sums);
  fit_ = nullptr;
}

void LevenbergMarquardt::makeRoom(std::size_t parameters) {
  for (std::vector<double>* const of_columns :
       {&trial_, &gradient_, &solution_, &step_, &added_, &slopes_, &move_, &held_}) {
    of_columns->resize(parameters);
  }
  gram_.resize(triangleSize(parameters));
  cholesky_.resize(parameters);
}

void LevenbergMarquardt::takeTrial(std::span<const double> sums) {
  ParameterFit& fit = *fit_;
  ++fit.passes_;
  const bool is_finite = readTrial(sums);
  if (is_finite) {
    if (trial_level_.loss < fit.best_loss_) takeBest();
    project();
  }
  if (fit.is_at_start_) {
    if (is_finite) fit.start_loss_ = std::min(fit.start_loss_, trial_level_.loss);
    const double of_zeros = rows_.target_length * rows_.target_length;
    const bool is_far = !is_finite || (rows_.are_of_squares && trial_level_.loss > kFarStart * of_zeros);
    if (fit.may_restart_ && is_far && fit.passes_ < iterations_) {
      fit.may_restart_ = false;
      for (std::size_t i = 0; i < fit.linear_; ++i) fit.nextTrial()[fit.columns_[i].parameter] = 0;
      return;
    }
    if (is_finite && proposesScale()) return;
    fit.is_at_start_ = false;
    if (!is_finite) {
      fit.status_ = FitStatus::kNotFinite;
      return;
    }
    moveToTrial();
    if (!fit.done()) fit.level_.needsSettling() ? proposeSettled() : proposeStep();
    return;
  }
  if (!is_finite) return reject(false);
  const double to_beat = valueOf(fit.level_);
  if (trial_level_.needsSettling() && fit.settlings_ < kMostSettlings && trial_level_.projected() < to_beat) {
    return proposeSettled();
  }
  valueOf(trial_level_) < to_beat ? accept() : reject(true);
}

// Of linear parameters only, all points have the same projected loss.
double LevenbergMarquardt::valueOf(const ParameterFit::Level& level) const {
  return fit_->linear_ == fit_->size() ? level.loss : level.value();
}

bool LevenbergMarquardt::readTrial(std::span<const double> sums) {
  const std::span<const ParameterFit::Column> columns = fit_->columns_;
  const std::span<const double> trial = fit_->trial();
  const std::size_t count = columns.size();
  trial_level_ = {.loss = sums[0]};
  for (std::size_t i = 0; i < count; ++i) {
    trial_[i] = trial[columns[i].parameter];
    gradient_[i] = sums[1 + columns[i].parameter];
  }
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      const std::size_t first = columns[i].parameter, second = columns[j].parameter;
      const std::size_t row = std::min(first, second), column = std::max(first, second);
      // The rows before, less the triangle that they lack.
      gram_[triangleIndex(i, j)] = sums[1 + count + row * count - triangleSize(row) + column];
    }
  }
  return std::ranges::all_of(sums, [](double sum) { return std::isfinite(sum); });
}

void LevenbergMarquardt::takeBest() {
  fit_->best_loss_ = trial_level_.loss;
  std::ranges::copy(fit_->trial(), fit_->best().begin());
  std::ranges::copy(gram_, fit_->bestGram().begin());
}

// What the sums tell of the best linear parameters.
void LevenbergMarquardt::project() {
  const std::size_t linear = fit_->linear_;
  std::ranges::fill(added_, 0);
  cholesky_.factor(gram_, added_, pivot_threshold_);
  cholesky_.forward(gradient_, solution_);
  trial_level_.linear_gain = sumOfSquares(std::span(solution_).first(linear));
  settlingStep();
  trial_level_.is_settled = linear == 0 || trial_level_.linear_gain <= kSettledShare * trial_level_.projected();
  trial_level_.is_near = lengthOf(step_, gram_) <= step_tolerance_ * lengthOf(trial_, gram_);
}

/// The step to the best linear parameters.
void LevenbergMarquardt::settlingStep() {
  std::ranges::fill(step_, 0);
  const std::span<double> linear = std::span(step_).first(fit_->linear_);
  std::copy_n(solution_.begin(), linear.size(), linear.begin());
  cholesky_.backward(linear);
}

/// If a step of only a and b lowers the loss, and the linear parameters will not be tried or lower it less, they are
/// the next trial.
bool LevenbergMarquardt::proposesScale() {
  if (!std::exchange(fit_->has_scale_, false)) return false;
  const std::span<const ParameterFit::Column> columns = fit_->columns_;
  const std::size_t count = columns.size();
  const auto placeOf = [&](std::size_t parameter) {
    return static_cast<std::size_t>(std::ranges::find(columns, parameter, &ParameterFit::Column::parameter) -
                                    columns.begin());
  };
  const std::size_t a = placeOf(count - 2), b = placeOf(count - 1);
  const double aa = gram_[triangleIndex(a, a)], bb = gram_[triangleIndex(b, b)];
  const double ab = gram_[triangleIndex(std::max(a, b), std::min(a, b))];
  const double determinant = aa * bb - ab * ab;
  // A constant f adds nothing to a.
  const bool is_constant = !(determinant > pivot_threshold_ * aa * bb);
  const double of_b = is_constant ? -trial_[b] : (gradient_[b] * aa - gradient_[a] * ab) / determinant;
  const double of_a = (gradient_[a] - of_b * ab) / aa;
  const double gain =
      2 * (of_a * gradient_[a] + of_b * gradient_[b]) - (of_a * (of_a * aa + 2 * of_b * ab) + of_b * of_b * bb);
  if (!(gain > least_decrease_ * trial_level_.loss) ||
      (gain <= trial_level_.linear_gain && trial_level_.needsSettling())) {
    return false;
  }
  std::ranges::fill(step_, 0);
  step_[a] = of_a;
  step_[b] = of_b;
  propose(trial_);
  return true;
}

void LevenbergMarquardt::accept() {
  ParameterFit& fit = *fit_;
  fit.has_stepped_ = true;
  if (fit.predicted_ > 0) {
    const double excess = 2 * (fit.level_.value() - trial_level_.value()) / fit.predicted_ - 1;
    fit.damping_ *= std::max(1.0 / 3, 1 - excess * excess * excess);
  } else if (fit.predicted_ == 0) {
    // With linear parameters far from the best, columns may be so long that no step would be left.
    const std::span<double> scales = fit.scales();
    for (std::size_t i = fit.linear_; i < scales.size(); ++i) {
      scales[i] = std::min(scales[i], kMostStartScale * cholesky_.remainder(gram_, i, fit.linear_));
    }
  }
  fit.growth_ = 2;
  moveToTrial();
  if (fit.done()) return;
  // Another solver refines linear parameters (ParameterFit::isIllConditioned()).
  fit.is_ill_conditioned_&& fit.linear_ == fit.size() ? giveUp() : proposeStep();
}

void LevenbergMarquardt::moveToTrial() {
  ParameterFit& fit = *fit_;
  fit.level_ = trial_level_;
  std::ranges::copy(trial_, fit.current().begin());
  std::ranges::copy(gradient_, fit.gradient().begin());
  std::ranges::copy(gram_, fit.gram().begin());
  const std::span<double> scales = fit.scales();
  for (std::size_t i = fit.linear_; i < scales.size(); ++i) {
    scales[i] = std::max(scales[i], cholesky_.remainder(gram_, i, fit.linear_));
    if (!cholesky_.isDependent(i)) fit.columns_[i].was_independent = true;
  }
  fit.is_ill_conditioned_ = isIllConditioned();
  const bool is_singular = cholesky_.rank() == 0;
  if (converges()) {
    fit.status_ = FitStatus::kConverged;
  } else if (is_singular) {
    fit.status_ = FitStatus::kSingular;
  }
}

// Before the step, so that a pass is saved.
bool LevenbergMarquardt::converges() {
  if (trial_.empty()) return true;
  // Of squares, that is so where the loss is 0.
  if (std::ranges::all_of(gradient_, [](double slope) { return slope == 0; }) && trial_level_.loss == 0) return true;
  if (rows_.are_of_squares && std::sqrt(trial_level_.loss) <= kLeastResidual * lastPlacesOf(trial_, gram_)) return true;
  if (cholesky_.rank() == 0) return false;
  // An undamped step leaves out parameters that depend on others here, but did not before: damped steps may lead away.
  for (std::size_t i = fit_->linear_; i < trial_.size(); ++i) {
    if (cholesky_.isDependent(i) && fit_->columns_[i].was_independent) return fit_->is_negligible_;
  }
  const double least = loss_tolerance_ * std::fabs(trial_level_.loss);
  if (fit_->isBounded()) {
    std::ranges::fill(added_, 0);
    return solveWithinBounds() <= least || isSmall(step_);
  }
  if (sumOfSquares(solution_) <= least) return true;
  std::ranges::copy(solution_, step_.begin());
  cholesky_.backward(step_);
  return isSmall(step_);
}

bool LevenbergMarquardt::isSmall(std::span<const double> step) const {
  return lengthOf(step, fit_->gram()) <= step_tolerance_ * lengthOf(fit_->current(), fit_->gram());
}

void LevenbergMarquardt::reject(bool is_finite) {
  ParameterFit& fit = *fit_;
  // Damping shortens no step of linear parameters only.
  if (fit.is_negligible_ || fit.damping_ > kMostDamping || fit.linear_ == fit.size()) return giveUp();
  fit.damping_ *= fit.growth_;
  fit.growth_ *= 2;
  if (!fit.has_stepped_) {
    // Where on the step the parabola is least that has the losses at its ends and the slope at its begin.
    const double rise = trial_level_.value() - fit.level_.value(), slope = fit.slope_;
    const double share = is_finite ? std::max(kLeastShare, slope / (2 * (rise + slope))) : kLeastShare;
    shorten(share * fit.step_length_);
  }
  proposeStep();
}

// No step lowers the loss, which is a minimum if rounding hides what an undamped step would gain.
void LevenbergMarquardt::giveUp() {
  ParameterFit& fit = *fit_;
  std::ranges::fill(added_, 0);
  cholesky_.factor(fit.gram(), added_, pivot_threshold_);
  cholesky_.forward(fit.gradient(), solution_);
  const double loss = std::fabs(fit.level_.loss);
  const double hidden = std::max(least_decrease_ * loss, hiddenBy(lastPlacesOf(fit.current(), fit.gram()), loss));
  // Whether the best parameters have what linear ones gain already.
  const bool is_settled = fit.best_loss_ <= fit.level_.projected() + hidden;
  double left = sumOfSquares(std::span(solution_).subspan(is_settled ? fit.linear_ : 0));
  if (fit.isBounded()) left = solveWithinBounds() - (is_settled ? fit.level_.linear_gain : 0);
  fit.status_ = left <= hidden ? FitStatus::kConverged : FitStatus::kNoProgress;
}

/// The length of the last places of predictions: of their terms, and of the sum, which is near the target.
double LevenbergMarquardt::lastPlacesOf(std::span<const double> parameters, std::span<const double> gram) const {
  return last_place_ * std::max(lengthOf(parameters, gram), rows_.target_length);
}

/// By how much losses near this one may differ where predictions differ by rounding: squares of these differences, and
/// their products with residuals, which have any sign.
double LevenbergMarquardt::hiddenBy(double last_places, double loss) const {
  if (!rows_.are_of_squares) return 0;
  const double rounding = kRoundings * last_places;
  return rounding * (rounding + 2 * std::sqrt(loss / rows_.count));
}

// Where one column is just a multiple of another, as in p0*x0 + p1*x0, no solver can do better.
bool LevenbergMarquardt::isIllConditioned() const {
  const auto isMultiple = [&](std::size_t j) {
    const double own = gram_[triangleIndex(j, j)];
    for (std::size_t i = 0; i < j; ++i) {
      const double both = gram_[triangleIndex(j, i)], product = own * gram_[triangleIndex(i, i)];
      if (std::fabs(both * both - product) <= kSameDirection * product) return true;
    }
    return own == 0;
  };
  for (std::size_t j = 0; j < fit_->linear_; ++j) {
    if (cholesky_.pivot(j) <= ill_threshold_ && !isMultiple(j)) return true;
  }
  return false;
}

bool LevenbergMarquardt::tryCandidate(ParameterFit& fit, std::span<const double> sums, bool is_more_exact) {
  makeRoom(fit.size());
  fit_ = &fit;
  ++fit.passes_;
  bool is_better = readTrial(sums);
  if (is_better) {
    const double loss = trial_level_.loss, best = fit.best_loss_;
    const double hidden = std::min(hiddenBy(lastPlacesOf(trial_, gram_), best), kMostNoise * best);
    const bool is_equal = loss <= best + hidden && loss <= fit.start_loss_;
    is_better = loss < best || (is_more_exact && is_equal);
  }
  if (is_better) takeBest();
  fit_ = nullptr;
  return is_better;
}

// The first damping is a guess: Nielsen's factors would need a pass each until it is of the size of the columns.
void LevenbergMarquardt::shorten(double longest) {
  solveDamped();
  while (dampedLength(step_) > longest && fit_->damping_ < kMostDamping) {
    fit_->damping_ *= 2;
    solveDamped();
  }
}

void LevenbergMarquardt::proposeSettled() {
  settlingStep();
  ++fit_->settlings_;
  propose(trial_);
}

void LevenbergMarquardt::proposeStep() {
  ParameterFit& fit = *fit_;
  solveDamped();
  while (isTooLong(step_) && fit.damping_ < kMostDamping) {
    fit.damping_ *= 2;
    solveDamped();
  }
  fit.step_length_ = dampedLength(step_);
  const std::span<const double> gradient = fit.gradient();
  double descent = 0;
  for (std::size_t i = 0; i < step_.size(); ++i) descent += step_[i] * gradient[i];
  fit.slope_ = 2 * descent;
  const ParameterFit::Level& level = fit.level_;
  fit.predicted_ =
      fit.damping_ * fit.step_length_ * fit.step_length_ + descent - (level.is_settled ? level.linear_gain : 0);
  for (std::size_t i = 0; i < step_.size() && fit.isBounded(); ++i) fit.predicted_ += step_[i] * slopes_[i];
  fit.is_negligible_ = isSmall(step_) || fit.predicted_ <= least_decrease_ * std::fabs(level.loss);
  fit.settlings_ = 0;
  propose(fit.current());
}

void LevenbergMarquardt::solveDamped() {
  const std::span<const double> scales = fit_->scales();
  for (std::size_t i = 0; i < added_.size(); ++i) added_[i] = i < fit_->linear_ ? 0 : fit_->damping_ * scales[i];
  if (fit_->isBounded()) return static_cast<void>(solveWithinBounds());
  cholesky_.factor(fit_->gram(), added_, pivot_threshold_);
  cholesky_.forward(fit_->gradient(), step_);
  cholesky_.backward(step_);
}

/// J'J with zeros for the columns that are not to get a step: ScaledCholesky leaves them out.
template <class IsOut>
std::span<const double> LevenbergMarquardt::gramWithout(std::span<const double> gram, const IsOut& is_out) {
  free_gram_.assign(gram.begin(), gram.end());
  for (std::size_t i = 0; i < step_.size(); ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      if (is_out(i) || is_out(j)) free_gram_[triangleIndex(i, j)] = 0;
    }
  }
  return free_gram_;
}

/// `step_` becomes the minimum of the model, with `added_` added to J'J, within the bounds: a solution of the free
/// parameters is followed to the first bound, whose parameter is then held; at their minimum, the held one that gains
/// most by leaving its bound becomes free. Gives the gain of the step, less what is added.
double LevenbergMarquardt::solveWithinBounds() {
  const std::size_t count = step_.size();
  const std::span<const double> gram = fit_->gram(), gradient = fit_->gradient(), current = fit_->current();
  const auto roomTo = [&](std::size_t i, double side) { return fit_->boundTowards(i, side) - current[i]; };
  std::ranges::fill(step_, 0);
  for (std::size_t i = 0; i < count; ++i) held_[i] = roomTo(i, 1) == roomTo(i, -1) ? kFixed : 0;
  bool is_least = false;  // of the free parameters
  for (std::size_t round = 0;; ++round) {
    double gain = 0, most = 0;
    std::size_t leaving = count, stopped = count;
    for (std::size_t i = 0; i < count; ++i) {
      slopes_[i] = gradient[i] - added_[i] * step_[i];
      for (std::size_t j = 0; j < count; ++j)
        slopes_[i] -= gram[triangleIndex(std::max(i, j), std::min(i, j))] * step_[j];
      gain += (gradient[i] + slopes_[i]) * step_[i];
      const double own = slopes_[i] * slopes_[i] / gram[triangleIndex(i, i)];
      if (!(held_[i] * slopes_[i] < 0 && own > most)) continue;
      leaving = i;
      most = own;
    }
    if ((is_least && leaving == count) || round > kRoundsPerParameter * count) return gain;
    if (is_least) held_[leaving] = 0;
    cholesky_.factor(gramWithout(gram, [&](std::size_t i) { return held_[i] != 0; }), added_, pivot_threshold_);
    cholesky_.forward(slopes_, move_);
    cholesky_.backward(move_);
    double share = 1;
    for (std::size_t i = 0; i < count; ++i) {
      const double own = move_[i] == 0 ? 1 : std::max((roomTo(i, move_[i]) - step_[i]) / move_[i], 0.0);
      if (!(own < share)) continue;
      share = own;
      stopped = i;
    }
    for (std::size_t i = 0; i < count; ++i) step_[i] += share * move_[i];
    is_least = stopped == count;
    if (is_least) continue;
    held_[stopped] = move_[stopped] > 0 ? 1 : -1;
    step_[stopped] = roomTo(stopped, held_[stopped]);
  }
}

void LevenbergMarquardt::propose(std::span<const double> from) {
  if (fit_->passes_ >= iterations_) {
    fit_->status_ = FitStatus::kIterations;
    return;
  }
  const std::span<double> trial = fit_->nextTrial();
  for (std::size_t i = 0; i < from.size(); ++i) {
    double& number = trial[fit_->columns_[i].parameter];
    number = from[i] + step_[i];
    if (!fit_->isBounded()) continue;
    // A step to a bound ends just there: rounding may leave it a place before or behind.
    const double bound = fit_->boundTowards(i, step_[i]);
    number = step_[i] == bound - from[i] ? bound : fit_->within(fit_->columns_[i].parameter, number);
  }
}

bool LevenbergMarquardt::isTooLong(std::span<const double> step) const {
  const std::span<const double> current = fit_->current();
  for (std::size_t i = fit_->linear_; i < step.size(); ++i) {
    const double size = std::fabs(current[i]);
    if (size > 0 && std::fabs(step[i]) > kLongestStep * size) return true;
  }
  return false;
}

double LevenbergMarquardt::dampedLength(std::span<const double> step) const {
  const std::span<const double> scales = fit_->scales();
  double sum = 0;
  for (std::size_t i = fit_->linear_; i < step.size(); ++i) sum += scales[i] * step[i] * step[i];
  return std::sqrt(sum);
}

void LevenbergMarquardt::standardErrors(const ParameterFit& fit, std::size_t rows, std::span<double> errors) {
  std::ranges::fill(errors, std::numeric_limits<double>::quiet_NaN());
  if (!std::isfinite(fit.best_loss_)) return;
  makeRoom(fit.size());
  std::ranges::fill(added_, 0);
  const auto is_at_bound = [&](std::size_t i) { return fit.isAtBound(i); };
  cholesky_.factor(fit.isBounded() ? gramWithout(fit.bestGram(), is_at_bound) : fit.bestGram(), added_,
                   pivot_threshold_);
  if (rows <= cholesky_.rank()) return;
  const double variance = fit.best_loss_ / static_cast<double>(rows - cholesky_.rank());
  for (std::size_t i = 0; i < fit.size(); ++i) {
    errors[fit.columns_[i].parameter] = std::sqrt(variance * cholesky_.inverseDiagonal(i, step_));
  }
}

}  // namespace srjit::fit
