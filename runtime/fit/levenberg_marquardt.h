// Fitting the parameters of one expression to data by least squares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "ir/numeric.h"
#include "runtime/fit/scaled_cholesky.h"
#include "runtime/fit_options.h"

namespace srjit::fit {

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
/// Results depend on the sums alone. Allocates in the constructor alone, from `memory`. Not thread-safe.
class ParameterFit {
 public:
  /// Whether the last two parameters are a and b of a + b f, with 0 and 1 to start from.
  enum class Scale { kNone, kLastTwo };

  /// `linear`: which parameters enter linearly and jointly (LinearParameters), each once; others are right, too, but
  /// take more passes. `precision` is that of the terms of sums.
  ParameterFit(std::span<const double> start, std::span<const std::uint32_t> linear, Precision precision,
               const FitOptions& options, Scale scale = Scale::kNone,
               std::pmr::memory_resource* memory = std::pmr::get_default_resource());

  bool done() const noexcept { return status_ != FitStatus::kRunning; }
  FitStatus status() const noexcept { return status_; }
  /// The number of sums of k parameters.
  static constexpr std::size_t sumsOf(std::size_t k) noexcept { return 1 + k + triangleSize(k); }

  /// The parameters to evaluate next. Valid until the next call of another member.
  std::span<const double> trial() const noexcept { return trial_in_order_; }
  /// The sums of trial() over rows with r = y - f, in the order of Quantity::kNormalEquations: r r; r f_i for each i;
  /// f_i f_j for i <= j by i, then j. Not to be called when done().
  void take(std::span<const double> sums);
  /// Ends with what there is.
  void cancel() noexcept {
    if (!done()) status_ = FitStatus::kCancelled;
  }

  /// The parameters of the smallest loss so far, which is infinite before the first. That of the start is among them.
  std::span<const double> parameters() const noexcept { return best_in_order_; }
  double loss() const noexcept { return best_.loss; }
  unsigned passes() const noexcept { return passes_; }
  /// From the diagonal of s^2 (J'J)^-1 at parameters(), where s^2 is the loss by degrees of freedom, `rows` less the
  /// rank of J. NaN for a parameter that depends on those before it (linear ones come first), for all if there are no
  /// degrees of freedom, and before the first pass. `errors` has one number for each parameter.
  void standardErrors(std::size_t rows, std::span<double> errors);

 private:
  /// Parameters with their sums, linear ones first.
  struct Point {
    Point(std::size_t size, std::pmr::memory_resource* memory)
        : parameters(size, memory), gradient(size, memory), gram(triangleSize(size), memory) {}
    std::pmr::vector<double> parameters;
    double loss = 0;
    std::pmr::vector<double> gradient;  ///< J'r
    std::pmr::vector<double> gram;      ///< J'J
    double linear_gain = 0;             ///< by how much the best linear parameters would lower the loss
    bool is_settled = false;            ///< whether the linear parameters are near the best
    /// What trials are compared by.
    double value() const noexcept { return is_settled ? projected() : loss; }
    double projected() const noexcept { return linear_gain == 0 ? loss : loss > linear_gain ? loss - linear_gain : 0; }
  };

  bool readTrial(std::span<const double> sums);
  void keepBest();
  void project();
  void settlingStep();
  bool proposesScale();
  void acceptStart();
  void accept();
  void accepted();
  void reject(bool is_finite);
  void shorten(double longest);
  double shareOfStep() const;
  bool converges();
  void proposeSettled(const Point& from);
  void proposeStep();
  void solveDamped();
  void propose(const Point& from);
  bool isSmall(std::span<const double> step) const;
  bool isTooLong(std::span<const double> step) const;
  double lengthOf(std::span<const double> step, const Point& at) const;
  double dampedLength(std::span<const double> step) const;

  unsigned iterations_;                     ///< FitOptions
  double loss_tolerance_, step_tolerance_;  ///< likewise
  double pivot_threshold_;
  FitStatus status_ = FitStatus::kRunning;
  unsigned passes_ = 0;
  std::size_t linear_;                     ///< how many
  std::pmr::vector<std::uint32_t> order_;  ///< linear parameters first
  Point current_, trial_, best_;
  std::pmr::vector<double> trial_in_order_, best_in_order_;

  ScaledCholesky cholesky_;
  std::pmr::vector<double> solution_;  ///< forward()'s at the trial
  std::pmr::vector<double> step_;
  std::pmr::vector<double> scales_;  ///< the largest diagonal so far of the Schur complement; 0 of linear parameters
  std::pmr::vector<std::uint8_t> was_independent_;  ///< at a point that was accepted
  std::pmr::vector<double> added_;
  double least_decrease_;       ///< by which a step may be expected to lower a loss of 1
  double damping_, growth_;     ///< Nielsen's mu and nu
  double predicted_ = 0;        ///< of the damped step: the decrease of value(); 0 before the first
  double slope_ = 0;            ///< likewise, at its begin
  double step_length_ = 0;      ///< likewise: dampedLength()
  bool is_negligible_ = false;  ///< the damped step; if it is rejected, so are all that are damped more
  bool has_stepped_ = false;    ///< whether a step was accepted
  bool is_at_start_ = true;     ///< whether the next trial is the start, or differs from it by a and b alone
  bool has_scale_;              ///< whether there are a and b, which may be proposed
  unsigned settlings_ = 0;      ///< since the damped step or the start
};

}  // namespace srjit::fit
