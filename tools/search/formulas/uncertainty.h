// What data say of a formula that was chosen: how exactly they decide its constants, how far its predictions may be
// off, and which columns matter. All functions are thread-safe, and throw the errors of the engine, which must be of
// Precision::kF64.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "ir/expression.h"
#include "runtime/engine.h"

namespace srjit::search {

/// Of least squares, with the formula linearised at its constants (D. M. Bates, D. G. Watts, "Nonlinear Regression
/// Analysis and Its Applications", 1988, 2.3), whatever loss it was searched by. Whole exponents
/// (Exponents::kWholeKept) count as known. Plain data.
struct Uncertainty {
  /// By constant, in the order of the formula's tokens. NaN if it is known, if others can replace it, and without
  /// degrees of freedom.
  std::vector<double> standard_errors;
  /// The standard deviation of a residual in a row of average weight: the root of the weighted mean of squares, times
  /// n / (n - p). NaN without degrees of freedom.
  double residual = std::numeric_limits<double>::quiet_NaN();
  /// n - p: the rows of a weight above 0, less the constants that the data decide; at least 0.
  std::size_t freedom = 0;
  // Of the constants that are not known, where J has their derivatives, and weights have a mean of 1:
  std::vector<double> lengths;  ///< of the columns of J
  std::vector<double> cosines;  ///< J'J by unit columns, in the order of fit::triangleIndex()
};

/// `data` must have a target, and be finite. Rows where a derivative is not finite count with a derivative of 0.
Uncertainty uncertaintyOf(const Engine& engine, const Expression& formula, const DataView& data);

/// By row of `rows`, whose target is not read: by how much the prediction may be off a new measurement of average
/// weight, on either side, with this probability; level is above 0 and below 1. NaN without degrees of freedom, and
/// where a derivative is not finite. `uncertainty` is that of the formula.
std::vector<double> halfWidths(const Engine& engine, const Expression& formula, const Uncertainty& uncertainty,
                               const DataView& rows, double level);

/// The number that Student's t of `freedom` degrees exceeds on neither side with probability `level`; NaN for none.
double studentQuantile(double level, std::size_t freedom);

/// By column of `data`: the mean squared change of the prediction when the column is shuffled, in 4,096 rows at equal
/// distances at most, divided by the sum over the columns. For independent columns that is the total-effect index (M.
/// J. W. Jansen, "Analysis of variance designs for model output", Comput. Phys. Commun. 117, 1999). 0 for a column that
/// the formula has not. Rows without a finite prediction are left out. The same for the same data.
std::vector<double> importancesOf(const Engine& engine, const Expression& formula, const DataView& data);

}  // namespace srjit::search
