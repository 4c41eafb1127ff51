// Fitting the parameters of expressions to data by least squares.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ir/numeric.h"
#include "runtime/fit/least_squares.h"
#include "runtime/fit/progress.h"
#include "runtime/fit_options.h"

namespace srjit::fit {

/// The Levenberg-Marquardt method with variable projection, as a state machine: the owner of the data evaluates the
/// sums of a trial, and take() gives the next parameters. One pass over the data is one trial of all parameters.
///
/// - Only nonlinear parameters are damped (D. W. Marquardt, SIAM J. 11(2), 1963). So a step is a damped one of Golub's
///   and Pereyra's projected loss (SIAM J. Numer. Anal. 10(2), 1973), in the approximation of L. Kaufman (BIT 15,
///   1975), where linear parameters follow to first order (algorithm 3 of A. Ruhe, P. A. Wedin, SIAM Rev. 22(3), 1980).
/// - Trials are compared by that loss, of the best linear parameters, which the sums tell without a pass. If the linear
///   parameters of the trial are far from the best, these are evaluated before the trial counts: its sums and
///   derivatives are too inexact.
/// - The damping is that of H. B. Nielsen (report IMM-REP-1999-05, DTU), scaled by the largest squared columns of the
///   projected J so far (Moré 1978). As long as no step was accepted, a rejected one is shortened to where the parabola
///   through both losses is least, as in MINPACK. A step changes no damped parameter by more than three times
///   itself, unless it is 0.
/// - Genetic programming makes many redundant parameters (G. Kronberger, arXiv 2209.00942). Those whose columns are
///   combinations of linear parameters' get no step; others share the step of their combination (ScaledCholesky).
/// - A fit ends before the pass that would only confirm it. If no step lowers the loss, the fit has converged, too, if
///   an undamped step would lower it by no more than rounding may.
/// - Of a + b f the best a and b at the start come first, unless the linear parameters are better: with some of f's
///   parameters linear, b is not, and a fit from another b could end above the scaled loss of the start.
///
/// - Parameters with bounds are damped ones. A step is the minimum of the damped model within the bounds, by an active
///   set: a parameter at a bound that the loss falls beyond stays there (projected Levenberg-Marquardt steps: C.
///   Kanzow, N. Yamashita, M. Fukushima, J. Comput. Appl. Math. 172, 2004; the active set: C. L. Lawson, R. J. Hanson,
///   "Solving Least Squares Problems", 1974, ch. 23). A fit has converged if the undamped step within the bounds gains
///   nothing.
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
  /// What rounding changes, besides the terms of parameters.
  struct Rows {
    double target_length = 0;    ///< the length of the target, weighted as the sums are
    double count = 1;            ///< how many are added
    bool are_of_squares = true;  ///< whether the loss is the sum of squared residuals
  };

  /// `precision` is that of the terms of sums; `options` allow an iteration at least.
  LevenbergMarquardt(Precision precision, const FitOptions& options, const Rows& rows);
  LevenbergMarquardt(Precision precision, const FitOptions& options) : LevenbergMarquardt(precision, options, Rows()) {}

  /// The number of sums of k parameters.
  static constexpr std::size_t sumsOf(std::size_t k) noexcept { return 1 + k + triangleSize(k); }

  /// The sums of fit.trial() over rows with r = y - f, in the order of Quantity::kNormalEquations: r r; r f_i for each
  /// i; f_i f_j for i <= j by i, then j. Not to be called when the fit is done(). Throws std::bad_alloc; the fit is
  /// then as before.
  void take(ParameterFit& fit, std::span<const double> sums);

  /// Takes the sums of fit.trial() of a fit that is done(). These parameters become fit.parameters() if their loss is
  /// smaller, or, with `is_more_exact`, if both losses differ by no more than rounding may and it is not above that of
  /// the start. Returns whether they did.
  bool tryCandidate(ParameterFit& fit, std::span<const double> sums, bool is_more_exact);

  /// From the diagonal of s^2 (J'J)^-1 at fit.parameters(), where s^2 is the loss by degrees of freedom, `rows` less
  /// the rank of J. NaN for a parameter that depends on those before it (linear ones come first), for all without
  /// degrees of freedom, before the first pass, and at a bound, where a parameter counts as known. `errors` has one
  /// number for each parameter.
  void standardErrors(const ParameterFit& fit, std::size_t rows, std::span<double> errors);

 private:
  void makeRoom(std::size_t parameters);
  void takeTrial(std::span<const double> sums);
  double valueOf(const ParameterFit::Level& level) const;
  bool readTrial(std::span<const double> sums);
  void takeBest();
  void project();
  void settlingStep();
  bool proposesScale();
  void accept();
  void moveToTrial();
  void reject(bool is_finite);
  void shorten(double longest);
  bool converges();
  bool isIllConditioned() const;
  void giveUp();
  double lastPlacesOf(std::span<const double> parameters, std::span<const double> gram) const;
  double hiddenBy(double last_places, double loss) const;
  void proposeSettled();
  void proposeStep();
  void solveDamped();
  double solveWithinBounds();
  template <class IsOut>
  std::span<const double> gramWithout(std::span<const double> gram, const IsOut& is_out);
  void propose(std::span<const double> from);
  bool isSmall(std::span<const double> step) const;
  bool isTooLong(std::span<const double> step) const;
  double dampedLength(std::span<const double> step) const;

  const unsigned iterations_;                     ///< FitOptions
  const double loss_tolerance_, step_tolerance_;  ///< of FitOptions
  const double least_decrease_;                   ///< by which a step may be expected to lower a loss of 1
  const double pivot_threshold_, ill_threshold_;
  const double last_place_;
  const Rows rows_;

  // In take(), of the fit that goes on:
  ParameterFit* fit_ = nullptr;
  ParameterFit::Level trial_level_;
  std::vector<double> trial_, gradient_, gram_;  ///< of the trial, in the order of the columns
  ScaledCholesky cholesky_;
  std::vector<double> solution_;  ///< forward()'s at the trial
  std::vector<double> step_, added_;
  // Of solveWithinBounds():
  std::vector<double> slopes_, move_, free_gram_;
  std::vector<double> held_;  ///< by column: -1 at the lower bound, 1 at the upper one, 0 free; NaN: both are equal
};

}  // namespace srjit::fit
