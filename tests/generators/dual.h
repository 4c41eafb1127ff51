// Derivatives by dual numbers: forward through the cells of ops.def, the reference for derivatives of graphs.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/rows.h"

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
  std::vector<Dual> stack;
  for (const Token& token : expression.tokens()) {
    const auto arity = static_cast<std::size_t>(token.arity());
    Dual result;
    if (token.kind != Token::Kind::kOp) {
      result.depends = token.kind == kind && token.index == by;
      result.value = token.kind == Token::Kind::kConstant   ? token.value
                     : token.kind == Token::Kind::kVariable ? variables[token.index]
                                                            : parameters[token.index];
      result.derivative = result.magnitude = result.depends ? 1 : 0;
    } else {
      std::array<double, 3> x{};
      for (std::size_t k = 0; k < arity; ++k) x[k] = stack[stack.size() - arity + k].value;
      result.value = applyRow<double>(token.op, x[0], x[1], x[2]);
      for (std::size_t k = 0; k < arity; ++k) {
        const Dual& operand = stack[stack.size() - arity + k];
        const double outer = derivativeRow<double>(token.op, static_cast<int>(k), x[0], x[1], x[2], result.value);
        if (!operand.depends) continue;
        result.depends = true;
        // As in a branch that is not taken: no operand of it counts.
        if (outer != 0) {
          result.derivative += outer * operand.derivative;
          result.magnitude += std::fabs(outer) * operand.magnitude;
          const double exponent = std::fabs(std::log2(std::fabs(outer)));
          result.exponents = std::max(result.exponents, operand.exponents + (exponent >= 0 ? exponent : HUGE_VAL));
        }
      }
      stack.resize(stack.size() - arity);
    }
    stack.push_back(result);
  }
  return stack.back();
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
  std::vector<double> stack;
  for (const Token& token : expression.tokens()) {
    if (token.kind != Token::Kind::kOp) {
      stack.push_back(token.kind == Token::Kind::kConstant   ? token.value
                      : token.kind == Token::Kind::kVariable ? variables[token.index]
                                                             : parameters[token.index]);
      continue;
    }
    const auto arity = static_cast<std::size_t>(token.arity());
    std::array<double, 3> x{};
    for (std::size_t k = 0; k < arity; ++k) x[k] = stack[stack.size() - arity + k];
    for (std::size_t by = 0; by < arity; ++by) {
      const double here = partial(token.op, static_cast<int>(by), x);
      for (std::size_t k = 0; k < arity; ++k) {
        for (const double towards : {-HUGE_VAL, HUGE_VAL}) {
          std::array<double, 3> beside = x;
          beside[k] = std::nextafter(x[k], towards);
          const double there = partial(token.op, static_cast<int>(by), beside);
          if (!(std::fabs(here - there) <= kJump * std::fabs(here))) return true;
        }
      }
    }
    stack.resize(stack.size() - arity);
    stack.push_back(applyRow<double>(token.op, x[0], x[1], x[2]));
  }
  return false;
}

}  // namespace srjit
