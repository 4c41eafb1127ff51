// The state of the fit of one expression's parameters, and when a program is made again for the fits that go on.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "runtime/fit/least_squares.h"
#include "runtime/fit_options.h"

namespace srjit::fit {

/// The fit of one expression between two passes over the data: which parameters to evaluate next, and the results of
/// earlier ones. LevenbergMarquardt goes on with it. Allocates only in the constructor, from `memory`. Not thread-safe.
class ParameterFit {
 public:
  /// `linear`: which parameters enter linearly and jointly (LinearParameters), each once; others are right, too, but
  /// take more passes. `has_scale`: whether the last two are a and b of a + b f, with 0 and 1 to start from. `bounds`
  /// are those of the first parameters, if any has some; a parameter with a bound does not count as linear.
  ParameterFit(std::span<const double> start, std::span<const std::uint32_t> linear, bool has_scale = false,
               std::span<const ParameterBounds> bounds = {},
               std::pmr::memory_resource* memory = std::pmr::get_default_resource());

  bool done() const noexcept { return status_ != FitStatus::kRunning; }
  FitStatus status() const noexcept { return status_; }
  /// The parameters to evaluate next. Valid until the fit goes on.
  std::span<const double> trial() const noexcept { return numbers(0, size()); }
  /// Makes these the parameters to evaluate next, by LevenbergMarquardt::tryCandidate().
  void setTrial(std::span<const double> parameters) noexcept { std::ranges::copy(parameters, nextTrial().begin()); }
  /// If the sums of the start are not finite, or far above those of predictions of 0, begins again from it with its
  /// linear parameters 0.
  void allowRestart() noexcept { may_restart_ = linear_ > 0; }
  /// Ends with what there is.
  void cancel() noexcept {
    if (!done()) status_ = FitStatus::kCancelled;
  }

  /// The parameters of the smallest loss so far, which is infinite before the first. That of the start is among them.
  std::span<const double> parameters() const noexcept { return numbers(size(), size()); }
  double loss() const noexcept { return best_loss_; }
  unsigned passes() const noexcept { return passes_; }

  /// How many parameters are linear, and the number of the parameter in place `i`, where linear ones come first.
  std::size_t linear() const noexcept { return linear_; }
  std::size_t size() const noexcept { return columns_.size(); }
  std::uint32_t parameterAt(std::size_t i) const noexcept { return columns_[i].parameter; }
  /// The squared length of the derivative's column in place `i`, at parameters().
  double squaredLength(std::size_t i) const noexcept { return bestGram()[triangleIndex(i, i)]; }
  /// The bound of the parameter in place `i` that lies in the direction of `step`; infinite if there is none.
  double boundTowards(std::size_t i, double step) const noexcept {
    const ParameterBounds bounds = isBounded() ? bounds_[parameterAt(i)] : ParameterBounds{};
    return step > 0 ? bounds.upper : bounds.lower;
  }
  /// Whether the parameter in place `i` is at one of its bounds, at parameters().
  bool isAtBound(std::size_t i) const noexcept {
    const double value = parameters()[parameterAt(i)];
    return value == boundTowards(i, -1) || value == boundTowards(i, 1);
  }
  /// The number next to `value` that the bounds of `parameter` allow.
  double within(std::size_t parameter, double value) const noexcept {
    return isBounded() ? std::clamp(value, bounds_[parameter].lower, bounds_[parameter].upper) : value;
  }
  /// Whether the fit ended where columns of linear parameters are too near to combinations for normal equations.
  bool isIllConditioned() const noexcept { return is_ill_conditioned_; }
  /// The status of a fit that a better solver has taken to its end.
  void settle() noexcept {
    if (status_ == FitStatus::kNoProgress) status_ = FitStatus::kConverged;
  }

  /// What belongs to the fit beside this object: for a caller that has memory fetched ahead.
  std::array<std::span<const std::byte>, 2> memory() const noexcept {
    return {std::as_bytes(std::span(numbers_)), std::as_bytes(std::span(columns_))};
  }

 private:
  friend class LevenbergMarquardt;

  /// How good some parameters are.
  struct Level {
    double loss = 0;
    double linear_gain = 0;   ///< by how much the best linear parameters would lower the loss
    bool is_settled = false;  ///< whether that is a small share of the loss, so that their difference has digits left
    bool is_near = false;     ///< whether settling would move the linear parameters by less than a step may count
    bool needsSettling() const noexcept { return !is_settled && !is_near; }
    /// What trials are compared by. Where linear_gain is nearly the loss, rounding decides about their difference.
    double value() const noexcept { return is_settled ? projected() : loss; }
    double projected() const noexcept { return linear_gain == 0 ? loss : loss > linear_gain ? loss - linear_gain : 0; }
  };
  struct Column {
    std::uint32_t parameter;
    bool was_independent = false;  ///< at a point that was accepted
  };

  bool isBounded() const noexcept { return !bounds_.empty(); }

  static constexpr std::size_t kPerParameter = 5;  ///< numbers up to scales(), beside two triangles
  std::span<const double> numbers(std::size_t first, std::size_t count) const noexcept {
    return std::span(numbers_).subspan(first, count);
  }
  std::span<double> numbers(std::size_t first, std::size_t count) noexcept {
    return std::span(numbers_).subspan(first, count);
  }
  std::span<double> nextTrial() noexcept { return numbers(0, size()); }
  std::span<double> best() noexcept { return numbers(size(), size()); }
  // Of the parameters that were accepted last, in the order of columns_:
  std::span<double> current() noexcept { return numbers(2 * size(), size()); }
  std::span<double> gradient() noexcept { return numbers(3 * size(), size()); }  ///< J'r
  /// The largest diagonal so far of the Schur complement; 0 of linear parameters.
  std::span<double> scales() noexcept { return numbers(4 * size(), size()); }
  std::span<double> gram() noexcept { return numbers(kPerParameter * size(), triangleSize(size())); }  ///< J'J
  /// J'J at best(), the last of the numbers.
  std::span<double> bestGram() noexcept { return std::span(numbers_).last(triangleSize(size())); }
  std::span<const double> bestGram() const noexcept { return std::span(numbers_).last(triangleSize(size())); }

  // In one block, which takes less memory than an allocation for each.
  std::pmr::vector<double> numbers_;
  std::pmr::vector<Column> columns_;          ///< linear parameters first
  std::pmr::vector<ParameterBounds> bounds_;  ///< by parameter; empty if no parameter has any
  std::size_t linear_ = 0;                    ///< how many
  Level level_;                               ///< of current()
  double start_loss_;                         ///< infinite before the first pass
  double best_loss_;
  double damping_, growth_ = 2;  ///< Nielsen's mu and nu
  double predicted_ = 0;         ///< of the damped step: the decrease of value(); 0 before the first
  double slope_ = 0;             ///< of the damped step, at its begin
  double step_length_ = 0;       ///< of the damped step: dampedLength()
  unsigned passes_ = 0;
  unsigned settlings_ = 0;  ///< since the damped step or the start
  FitStatus status_ = FitStatus::kRunning;
  bool may_restart_ = false;
  bool is_ill_conditioned_ = false;
  bool is_negligible_ = false;  ///< the damped step; if it is rejected, so are all that are damped more
  bool has_stepped_ = false;    ///< whether a step was accepted
  bool is_at_start_ = true;     ///< whether the next trial is the start, or differs from it only by a and b
  bool has_scale_;              ///< whether there are a and b, which may be proposed
};

/// When a program is made again without the fits that have ended: once evaluating ended fits has taken as long as
/// making the program would, but not before half of the fits have ended. Both together then take at most twice as long
/// as with the best moment, which requires knowledge of the passes to come (the ski rental problem: A. Karlin, M.
/// Manasse, L. Rudolph, D. Sleator, "Competitive snoopy caching", Algorithmica 3, 1988).
class RemakeRule {
 public:
  /// A program of `fits` fits was made in `seconds`: 0 if it existed.
  void made(std::size_t fits, double seconds) {
    fits_ = fits;
    seconds_ = seconds;
    wasted_ = 0;
  }
  /// It was evaluated, while `going_on` of its fits went on.
  void evaluated(std::size_t going_on, double seconds) { wasted_ += seconds * (1 - shareOf(going_on)); }
  bool isDue(std::size_t going_on) const { return 2 * going_on <= fits_ && wasted_ >= seconds_ * shareOf(going_on); }

 private:
  double shareOf(std::size_t going_on) const { return static_cast<double>(going_on) / static_cast<double>(fits_); }

  std::size_t fits_ = 0;
  double seconds_ = 0;
  double wasted_ = 0;  ///< by evaluating what had ended
};

}  // namespace srjit::fit
