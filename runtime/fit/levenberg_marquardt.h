// Fitting the parameters of expressions to data by least squares.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "ir/numeric.h"
#include "runtime/fit/scaled_cholesky.h"
#include "runtime/fit_options.h"

namespace srjit::fit {

/// The fit of one expression between two passes over the data: which parameters are evaluated next, and what is known
/// of those before. LevenbergMarquardt goes on with it. Allocates in the constructor alone, from `memory`. Not
/// thread-safe.
class ParameterFit {
 public:
  /// Whether the last two parameters are a and b of a + b f, with 0 and 1 to start from.
  enum class Scale { kNone, kLastTwo };

  /// `linear`: which parameters enter linearly and jointly (LinearParameters), each once; others are right, too, but
  /// take more passes.
  ParameterFit(std::span<const double> start, std::span<const std::uint32_t> linear, Scale scale = Scale::kNone,
               std::pmr::memory_resource* memory = std::pmr::get_default_resource());

  bool done() const noexcept { return status_ != FitStatus::kRunning; }
  FitStatus status() const noexcept { return status_; }
  /// The parameters to evaluate next. Valid until the fit goes on.
  std::span<const double> trial() const noexcept { return numbers(0, size()); }
  /// Ends with what there is.
  void cancel() noexcept {
    if (!done()) status_ = FitStatus::kCancelled;
  }

  /// The parameters of the smallest loss so far, which is infinite before the first. That of the start is among them.
  std::span<const double> parameters() const noexcept { return numbers(size(), size()); }
  double loss() const noexcept { return best_loss_; }
  unsigned passes() const noexcept { return passes_; }

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
    bool is_settled = false;  ///< whether the linear parameters are near the best
    /// What trials are compared by.
    double value() const noexcept { return is_settled ? projected() : loss; }
    double projected() const noexcept { return linear_gain == 0 ? loss : loss > linear_gain ? loss - linear_gain : 0; }
  };
  struct Column {
    std::uint32_t parameter;
    bool was_independent = false;  ///< at a point that was accepted
  };

  static constexpr std::size_t kPerParameter = 5;  ///< numbers up to scales(), beside two triangles
  std::size_t size() const noexcept { return columns_.size(); }
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
  std::pmr::vector<Column> columns_;  ///< linear parameters first
  std::size_t linear_;                ///< how many
  Level level_;                       ///< of current()
  double best_loss_;
  double damping_, growth_ = 2;  ///< Nielsen's mu and nu
  double predicted_ = 0;         ///< of the damped step: the decrease of value(); 0 before the first
  double slope_ = 0;             ///< likewise, at its begin
  double step_length_ = 0;       ///< likewise: dampedLength()
  unsigned passes_ = 0;
  unsigned settlings_ = 0;  ///< since the damped step or the start
  FitStatus status_ = FitStatus::kRunning;
  bool is_negligible_ = false;  ///< the damped step; if it is rejected, so are all that are damped more
  bool has_stepped_ = false;    ///< whether a step was accepted
  bool is_at_start_ = true;     ///< whether the next trial is the start, or differs from it by a and b alone
  bool has_scale_;              ///< whether there are a and b, which may be proposed
};

/// The Levenberg-Marquardt method with variable projection, as a state machine: whoever has the data evaluates the sums
/// of a trial, and this says which parameters are next. Each pass over the data is one trial, for linear and nonlinear
/// parameters together.
///
/// - Only the parameters that do not enter linearly are damped (D. W. Marquardt, SIAM J. 11(2), 1963). So a step is a
///   damped one of Golub's and Pereyra's projected loss (SIAM J. Numer. Anal. 10(2), 1973), in the approximation of L.
///   Kaufman (BIT 15, 1975), where linear parameters follow to first order (algorithm 3 of A. Ruhe, P. A. Wedin, SIAM
///   Rev. 22(3), 1980).
/// - Trials are compared by that loss: what the best linear parameters would give, which the sums tell without a pass.
///   Where these are far from it, they are evaluated before the trial counts: the sums are too inexact otherwise, and
///   the derivatives of the next step would be those of other parameters.
/// - The damping is that of H. B. Nielsen (report IMM-REP-1999-05, DTU), scaled by the largest squared columns of the
///   projected J so far (Moré 1978). As long as no step was accepted, a rejected one is shortened to where the parabola
///   through both losses is least, as in MINPACK. A step changes no damped parameter by more than three times
///   itself, unless it is 0.
/// - Parameters whose columns are combinations of those of linear parameters get no step; those whose columns are
///   combinations of others' are damped like these, and share the step (ScaledCholesky). Genetic programming makes many
///   such (G. Kronberger, arXiv 2209.00942).
/// - A fit ends before the pass that would only confirm it.
/// - Of a + b f the best a and b at the start come first, unless the linear parameters are better: with some of f's
///   parameters linear, b is not, and a fit from another b could end above the scaled loss of the start.
///
/// It fits another loss than squared errors if the sums are those of Quantity::kReweighted, with half the slope and
/// half the curvature of the loss's term in place of residual and 1, and if no parameter is said to be linear. Steps
/// are then reweighted (P. J. Green, J. R. Stat. Soc. B 46(2), 1984), and trials are compared by the loss, which may be
/// negative.
///
/// Results depend on the start, the sums, the precision and the options, which must be the same in all passes of a fit.
/// One object goes on with one fit after another, and allocates for one that has more parameters than those before. Not
/// thread-safe.
class LevenbergMarquardt {
 public:
  /// `precision` is that of the terms of sums; `options` allow an iteration at least.
  LevenbergMarquardt(Precision precision, const FitOptions& options);

  /// The number of sums of k parameters.
  static constexpr std::size_t sumsOf(std::size_t k) noexcept { return 1 + k + triangleSize(k); }

  /// The sums of fit.trial() over rows with r = y - f, in the order of Quantity::kNormalEquations: r r; r f_i for each
  /// i; f_i f_j for i <= j by i, then j. Not to be called when the fit is done(). Throws std::bad_alloc; the fit is
  /// then as before.
  void take(ParameterFit& fit, std::span<const double> sums);

  /// From the diagonal of s^2 (J'J)^-1 at fit.parameters(), where s^2 is the loss by degrees of freedom, `rows` less
  /// the rank of J. NaN for a parameter that depends on those before it (linear ones come first), for all if there are
  /// no degrees of freedom, and before the first pass. `errors` has one number for each parameter.
  void standardErrors(const ParameterFit& fit, std::size_t rows, std::span<double> errors);

 private:
  void makeRoom(std::size_t parameters);
  void takeTrial(std::span<const double> sums);
  bool readTrial(std::span<const double> sums);
  void keepBest();
  void project();
  void settlingStep();
  bool proposesScale();
  void acceptStart();
  void accept();
  void moveToTrial();
  void reject(bool is_finite);
  void shorten(double longest);
  double shareOfStep() const;
  bool converges();
  void proposeSettled(std::span<const double> from);
  void proposeStep();
  void solveDamped();
  void propose(std::span<const double> from);
  bool isSmall(std::span<const double> step) const;
  bool isTooLong(std::span<const double> step) const;
  double dampedLength(std::span<const double> step) const;

  const unsigned iterations_;                     ///< FitOptions
  const double loss_tolerance_, step_tolerance_;  ///< likewise
  const double least_decrease_;                   ///< by which a step may be expected to lower a loss of 1
  const double pivot_threshold_;

  // In take(), of the fit that goes on:
  ParameterFit* fit_ = nullptr;
  ParameterFit::Level trial_level_;
  std::vector<double> trial_, gradient_, gram_;  ///< of the trial, in the order of the columns
  ScaledCholesky cholesky_;
  std::vector<double> solution_;  ///< forward()'s at the trial
  std::vector<double> step_, added_;
};

}  // namespace srjit::fit
