#include "compiler/kernels/code_length.h"

#include <algorithm>

namespace srjit {
namespace {

template <class Count>
std::size_t sum(const ExpressionView& expression, std::size_t leaf, const Count& count) {
  std::size_t all = 0;
  for (const Token token : expression) {
    all += token.kind == Token::Kind::kOp ? count(static_cast<std::size_t>(token.op)) : leaf;
  }
  return all;
}

}  // namespace

std::size_t instructionsOf(const ExpressionView& expression, const CodeWeights& weights) {
  return sum(expression, 0, [&](std::size_t op) -> std::size_t { return weights[op]; });
}

std::size_t deviceCodeLength(const ExpressionView& expression, const CodeWeights& weights) {
  return sum(expression, 1, [&](std::size_t op) { return std::max<std::size_t>(1, weights[op]); });
}

}  // namespace srjit
