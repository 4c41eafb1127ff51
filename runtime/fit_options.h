// Options of fitting parameters, and how a fit ended.
#pragma once

#include <cstdint>
#include <limits>
#include <stop_token>
#include <string_view>
#include <vector>

#include "runtime/engine_options.h"

namespace srjit {

/// Whether a loss of this row can be fitted: those that are not smallest for the best predictions (kSum, kCorrelation)
/// cannot.
bool canBeFitted(const LossInfo& loss) noexcept;

/// The numbers that a parameter may have: from `lower` to `upper`, both included. Equal ones fix it.
struct ParameterBounds {
  double lower = -std::numeric_limits<double>::infinity(), upper = std::numeric_limits<double>::infinity();
  bool isNone() const noexcept { return -lower == upper && upper == std::numeric_limits<double>::infinity(); }
};

/// When a fit of one expression's parameters ends. Norms of parameters are weighted by the lengths of the columns of J,
/// the derivatives of the prediction by the parameters, as in MINPACK (J. J. Moré, "The Levenberg-Marquardt Algorithm",
/// 1978), so they do not depend on units.
struct FitOptions {
  /// The loss to minimise: one that canBeFitted(), or a custom one. Those of squared errors, and the scaled forms of
  /// these, are fitted by least squares; others by reweighted steps (fit::LevenbergMarquardt), of a custom loss that is
  /// smooth but for kinks, and bounded below; its minimum need not be at the target. Rows whose prediction is not
  /// finite follow its policy: under kPropagate and kReject, parameters that give some are never taken; kSkip leaves
  /// these rows out, and compares means over the others, whose number must be at least that of the parameters, whatever
  /// the loss. A row in which only a derivative is not finite counts in the loss, and that derivative as 0 in the step.
  LossOptions loss = {};
  unsigned iterations = 100;  ///< passes over the data, at most; at least 1
  /// Converged, if the Gauss-Newton step would lower the loss by no more than this share of it. That is the squared
  /// cosine between the residuals and the tangent plane, or a relative offset (D. M. Bates, D. G. Watts, "A Relative
  /// Offset Orthogonality Convergence Criterion for Nonlinear Least Squares", Technometrics 23(2), 1981). By the
  /// default, in n rows, parameters are right to 1e-5 sqrt(n) standard errors.
  double loss_tolerance = 1e-10;
  /// Converged, if the Gauss-Newton step is no longer than this share of the parameters; at least two units of the last
  /// place of the engine's precision, which is what 0 means. Ends fits of data that the expression meets exactly. The
  /// step changes the predictions by about this share of their size: with an offset of 1e6, 1e-8 leaves residuals of
  /// 0.01.
  double step_tolerance = 0;
  std::stop_token stop = {};  ///< ends all fits with kCancelled, after the pass that runs
  /// Of p0, p1, ... in every expression; parameters beyond the last are free. A start outside is moved to the bound.
  /// The standard error of a parameter that ends at a bound is NaN, and it counts as known in those of the others.
  std::vector<ParameterBounds> bounds = {};
  bool has_bounds_of_each = false;  ///< `bounds` are those of all expressions' parameters, one expression after another
};

/// How the fit of an expression ended. Whatever it is, the parameters are the best that were evaluated, at worst those
/// of the start.
enum class FitStatus : std::uint8_t {
  kRunning,
  kConverged,   ///< by a tolerance, or where rounding hides what another step would gain
  kIterations,  ///< FitOptions::iterations passes, and not converged
  kNoProgress,  ///< no step lowers the loss, though the derivatives there tell of one
  kNotFinite,   ///< the sums of the start are not finite
  kSingular,    ///< the loss depends on no parameter, in first order
  kCancelled,
  kFailed,        ///< an error, which Losses::failures has; parameters are the best before it, NaN if none
  kNoParameters,  ///< the expression has none: the loss is that of the expression as it is
};

/// What the command prints: "converged", "iterations", "no parameters", or "failed: " and why. Ends with a zero.
std::string_view nameOf(FitStatus status) noexcept;

}  // namespace srjit
