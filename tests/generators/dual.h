// Derivatives by dual numbers: forward through the cells of ops.def, the reference for derivatives of graphs.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/numbers/postfix.h"
#include "ir/rows.h"
#include "tests/ir/domains.h"

namespace srjit {

/// A value, whether it depends on one leaf, its derivative by that, and the sum of the magnitudes that this adds up.
struct Dual {
  double value = 0;
  bool depends = false;
  double derivative = 0, magnitude = 0;
  /// The largest |log2| of a product of partial derivatives along a path: products in another order neither overflow
  /// nor underflow where it is small. Infinite if a partial derivative is not finite.
  double exponents = 0;
};

/// `expression` by the parameter or variable (`kind`) of index `by`.
inline Dual dualOf(const Expression& expression, std::span<const double> variables, std::span<const double> parameters,
                   Token::Kind kind, std::size_t by) {
  const auto leaf = [&](const Token& token) {
    const bool depends = token.kind == kind && token.index == by;
    const double one = depends ? 1 : 0;
    return Dual{numberOf(token, variables, parameters), depends, one, one};
  };
  const auto apply = [](Op op, std::span<const Dual> operands) {
    std::array<double, 3> x{};
    std::ranges::transform(operands, x.begin(), &Dual::value);
    Dual result{.value = applyRow<double>(op, x[0], x[1], x[2])};
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const double outer = derivativeRow<double>(op, static_cast<int>(k), x[0], x[1], x[2], result.value);
      if (!operands[k].depends) continue;
      result.depends = true;
      // As in a branch that is not taken: no operand of it counts.
      if (outer == 0) continue;
      result.derivative += outer * operands[k].derivative;
      result.magnitude += std::fabs(outer) * operands[k].magnitude;
      const double exponent = std::fabs(std::log2(std::fabs(outer)));
      result.exponents = std::max(result.exponents, operands[k].exponents + (exponent >= 0 ? exponent : HUGE_VAL));
    }
    return result;
  };
  return foldPostfix<Dual>(expression.tokens(), leaf, apply);
}

/// Whether a partial derivative of some operator jumps where it is taken, as that of abs at 0 and that of max of equal
/// operands. There the derivative depends on how the expression is written, even if its value does not: abs(-x) and
/// abs(x).
inline bool hasKink(const Expression& expression, std::span<const double> variables,
                    std::span<const double> parameters) {
  constexpr double kJump = 1e-3;
  const auto partial = [](Op op, int by, const std::array<double, 3>& x) {
    return derivativeRow<double>(op, by, x[0], x[1], x[2], applyRow<double>(op, x[0], x[1], x[2]));
  };
  bool has_kink = false;
  const auto leaf = [&](const Token& token) { return numberOf(token, variables, parameters); };
  const auto apply = [&](Op op, std::span<const double> operands) {
    std::array<double, 3> x{};
    std::ranges::copy(operands, x.begin());
    for (std::size_t by = 0; by < operands.size(); ++by) {
      const double here = partial(op, static_cast<int>(by), x);
      for (std::size_t k = 0; k < operands.size(); ++k) {
        for (const double towards : {-HUGE_VAL, HUGE_VAL}) {
          std::array<double, 3> beside = x;
          beside[k] = std::nextafter(x[k], towards);
          const double there = partial(op, static_cast<int>(by), beside);
          has_kink = has_kink || !(std::fabs(here - there) <= kJump * std::fabs(here));
        }
      }
    }
    return applyRow<double>(op, x[0], x[1], x[2]);
  };
  foldPostfix<double>(expression.tokens(), leaf, apply);
  return has_kink;
}

}  // namespace srjit
