// One expression in a simpler form, for people to read. A search shows its results in this form.
#pragma once

#include "ir/expression.h"
#include "ir/numeric.h"

namespace srjit {

/// `expression` after folding of constants and the rules of simplify.def, as an expression again. Of text:
///
///   print(simplify(parse("x0*1 + 2*3 + (x1 - x1)", Language::kInfix).value()), Language::kInfix)  // "x0 + 6"
///
/// `math` says what the result keeps. kStrict: every bit of every value (any NaN equals any NaN). kPrecise: values
/// within the bound of that mode (docs/accuracy.md); x0^2 becomes square(x0). kFast: values in real arithmetic, so
/// rounding may change, and NaN, infinities and the sign of zero may go; x0 + 0 becomes x0. Unlike in kernels, the
/// rules of kFast apply in f64, too, and powers are written as such, not as exp2(log2(x0) * p0). Constants are computed
/// in `precision`, and rounded to it.
///
/// Signs stand where people put them: x0 + -3 becomes x0 - 3, and x0 - x1 * -2 becomes x0 + x1 * 2. Operands of
/// commutative operators may be exchanged. Parameters keep their indices, but one without effect goes, so
/// parameterCount() may be smaller than before. Linear in the tokens, not recursive, thread-safe.
Expression simplify(const Expression& expression, Math math = Math::kFast, Precision precision = Precision::kF64);

}  // namespace srjit
