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

/// The arithmetic of a kernel, as far as its error is concerned.
struct Arithmetic {
  Precision precision = Precision::kF64;
  Math math = Math::kPrecise;
};

/// A value with a bound: a kernel's result lies within `error` of `value`. With a finite error, an infinite or NaN
/// value means that the kernel gives the same. An infinite error means that nothing is promised: the value overflows
/// the precision, or an operand's error reaches a pole or the end of a domain, or `fast` meets an exceptional value.
struct Bounded {
  double value;
  double error;
};

/// The reference value with a running error bound (J. H. Wilkinson; N. Higham, "Accuracy and Stability of Numerical
/// Algorithms", 3.3). Every operator runs its row of the table over intervals: each operation of the row adds its own
/// rounding (functions.def, IEEE 754) to what the errors of its operands do at most, which is taken from the ends of
/// the operands' intervals and so holds to every order; where a comparison could go either way, both arms count.
/// `variables` and `parameters` are what the kernel is given, already rounded to its precision; constants are rounded
/// here. The reference's own rounding is part of the bound. The bound holds with and without FMA fusion, since a fused
/// operation only omits a rounding; it does not hold after rewrites that reassociate, such as those of `fast`.
Bounded evaluateBounded(const Expression& expression, std::span<const double> variables,
                        std::span<const double> parameters, const Arithmetic& arithmetic);

}  // namespace srjit
