// Evaluation in double, ISO C++ only: the oracle for every kernel, and the bound of their error.
#pragma once

#include <span>

#include "ir/expression.h"
#include "ir/numeric.h"

namespace srjit {

/// The value for one row. `variables` and `parameters` must be at least as long as the expression's counts. Not
/// recursive.
double evaluateReference(const Expression& expression, std::span<const double> variables,
                         std::span<const double> parameters);

/// What a kernel computes in, as far as its error is concerned.
struct Arithmetic {
  Precision precision = Precision::kF64;
  Math math = Math::kPrecise;
  bool host = true;  ///< libmvec on the host, libdevice on a GPU: they differ in accuracy
};

/// A value with a bound: a kernel's result lies within `error` of `value`. An infinite error means that nothing is
/// promised: the value overflows or underflows the precision, or an operand's error reaches a jump or a pole.
struct Bounded {
  double value;
  double error;
};

/// The reference value with a running error bound (J. H. Wilkinson; N. Higham, "Accuracy and Stability of Numerical
/// Algorithms", 3.3): every operator adds its own rounding error (functions.def) to the errors of its operands times
/// the table's derivatives. `variables` and `parameters` are what the kernel is given, already rounded to its
/// precision. Second-order terms are covered by taking derivatives at the corners of the operands' error boxes. The
/// bound holds with and without FMA fusion, since a fused operation only omits a rounding.
Bounded evaluateBounded(const Expression& expression, std::span<const double> variables,
                        std::span<const double> parameters, const Arithmetic& arithmetic);

}  // namespace srjit
