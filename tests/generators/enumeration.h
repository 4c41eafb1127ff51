// Small expressions by exhaustive enumeration, as exhaustive symbolic regression searches them.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/expression.h"

namespace srjit {

/// `count` trees of + - * / pow abs log exp inv sqrt over the variables x0 and x1 and parameters (p0, p1, ... in the
/// order of the postfix form), by size: all trees of as many sizes as are complete within `count`, and for the rest
/// trees of the next two sizes, evenly spread. 250,000 are all of up to 6 tokens and some of 7 and 8, 7.6 on average.
///
/// Omits trees whose value another tree of at most the same size computes: operands of + and * in the other order,
/// functions of only parameters (themselves a parameter), differences from and quotients by such a parameter (a sum, a
/// product), an operator undone by the next (exp(log(a)), inv(inv(a)), abs of a value without sign), and a - a, a / a. That
/// is the idea of D. Bartlett, H. Desmond, P. Ferreira, "Exhaustive Symbolic Regression" (IEEE Trans. Evol. Comp.,
/// 2023), without its simplification by computer algebra.
///
/// The result is the same on every machine. All trees of the complete sizes and of the next one are in memory at once:
/// 250,000 expressions take a third of a second and 65 MB, a million 2 s and 380 MB.
std::vector<Expression> enumerateExpressions(std::size_t count);

}  // namespace srjit
