// Evaluation of expressions in any domain of ops.def, for tests.
#pragma once

#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/numbers/postfix.h"
#include "ir/rows.h"

namespace srjit {

/// The number that a leaf stands for.
inline double numberOf(const Token& token, std::span<const double> variables, std::span<const double> parameters) {
  if (token.kind == Token::Kind::kConstant) return token.value;
  return token.kind == Token::Kind::kVariable ? variables[token.index] : parameters[token.index];
}

/// The row of `op` over its operands.
template <class T>
T rowOf(Op op, std::span<const T> operands) {
  return applyRow<T>(op, operands[0], operands.size() > 1 ? operands[1] : T(0),
                     operands.size() > 2 ? operands[2] : T(0));
}

/// The value of `expression` with every operator's row in the domain T, which is constructible from double.
template <class T>
T evaluateAs(const Expression& expression, std::span<const double> variables, std::span<const double> parameters) {
  const auto leaf = [&](const Token& token) { return static_cast<T>(numberOf(token, variables, parameters)); };
  return foldPostfix<T>(expression.tokens(), leaf, rowOf<T>);
}

}  // namespace srjit
