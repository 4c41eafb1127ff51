// Evaluation of a postfix program in any domain.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "ir/expression.h"

namespace srjit {

/// The value of a valid program: `leaf(token)` is that of a token without operands, and `apply(op, operands)` that of
/// an operator over the values of its operands, a span. Not recursive.
template <class T, class Leaf, class Apply>
T foldPostfix(std::span<const Token> tokens, const Leaf& leaf, const Apply& apply) {
  std::vector<T> stack;
  for (const Token& token : tokens) {
    if (token.kind != Token::Kind::kOp) {
      stack.push_back(leaf(token));
      continue;
    }
    const auto arity = static_cast<std::size_t>(arityOf(token.op));
    T value = apply(token.op, std::span<const T>(stack).last(arity));
    stack.erase(stack.end() - static_cast<std::ptrdiff_t>(arity), stack.end());
    stack.push_back(std::move(value));
  }
  return std::move(stack.back());
}

}  // namespace srjit
