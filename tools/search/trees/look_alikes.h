// Functions that data at small values cannot tell from a polynomial at first: their series agree in the first terms.
#pragma once

#include <span>
#include <vector>

#include "passes/shorten/forms.h"

namespace srjit::search {

/// Formulas that are nearly equal to `formula` for variables in `ranges`, each once, as numbers to start a fit from. A
/// part u (1 + v) of it whose v is small there (a sum, exp(v), or a function such as sin(u) = u (1 - u^2 / 6 + ...))
/// becomes u g(v), for functions g(v) = 1 + v + ... of a table: 1 / (1 - v), exp(v), 2 v / (1 - exp(-2 v)), and with
/// v = -q^2 cos(q sqrt(2)), tanh(q sqrt(3)) / (q sqrt(3)), ... A product of columns u becomes u (1 + c v), where v is
/// a part of the product, or its square. They have operators that `formula` and `writing` lack, too. Thread-safe.
std::vector<Expression> lookAlikesOf(const Expression& formula, std::span<const Interval> ranges,
                                     const Writing& writing);

}  // namespace srjit::search
