// Evaluation of expressions in any domain of ops.def, for tests.
#pragma once

#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/rows.h"

namespace srjit {

/// The value of `expression` with every operator's row in the domain T, which is constructible from double.
template <class T>
T evaluateAs(const Expression& expression, std::span<const double> variables, std::span<const double> parameters) {
  std::vector<T> stack;
  for (const Token& token : expression.tokens()) {
    T operands[kMaxArity] = {T(0), T(0), T(0)};
    for (int i = token.arity() - 1; i >= 0; --i) {
      operands[i] = stack.back();
      stack.pop_back();
    }
    switch (token.kind) {
      case Token::Kind::kConstant:
        stack.push_back(static_cast<T>(token.value));
        break;
      case Token::Kind::kVariable:
        stack.push_back(static_cast<T>(variables[token.index]));
        break;
      case Token::Kind::kParameter:
        stack.push_back(static_cast<T>(parameters[token.index]));
        break;
      case Token::Kind::kOp:
        stack.push_back(applyRow<T>(token.op, operands[0], operands[1], operands[2]));
        break;
    }
  }
  return stack.back();
}

}  // namespace srjit
