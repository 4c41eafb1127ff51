// Functions that data at small values hardly tell from a polynomial: their series agree in the first terms.
#pragma once

#include <span>
#include <vector>

#include "passes/shorten/forms.h"

namespace srjit::search {

/// Formulas that are nearly equal to `formula` for variables in `ranges`, with numbers to start a fit from. A part
/// u (1 + v), a sum or exp(v), whose v is small there becomes u g(v) for functions g(v) = 1 + v + ... of a table, such
/// as 1 / (1 - v), exp(v), 2 v / (1 - exp(-2 v)), and with v = -q^2 / 3 tanh(q) / q. A product u of columns becomes
/// u + c u v, where v is a part of the product, or its square. They are not in their shortest form, and may have
/// operators that `formula` and `writing` lack. A function's v is taken for one of columns that are not negative, so
/// that the root of a square is no magnitude. Thread-safe.
std::vector<Expression> lookAlikesOf(const Expression& formula, std::span<const Interval> ranges,
                                     const Writing& writing);

}  // namespace srjit::search
