// Expressions that are longer than kernels: what a compiler must not be kept busy with.
#pragma once

#include <string>
#include <vector>

#include "ir/expression.h"
#include "ir/ops.h"
#include "tests/generators/population.h"

namespace srjit {

inline constexpr std::size_t kLongNodes = 20000;

struct LongExpression {
  std::string name;
  Expression expression;
};

/// Of about kLongNodes nodes each: sines of sines, a sum of products, and a random tree.
inline std::vector<LongExpression> longExpressions() {
  std::vector<Token> chain = {Token::variable(0)};
  while (chain.size() < kLongNodes) chain.push_back(Token::operation(Op::kSin));
  std::vector<Token> sum = {Token::variable(0)};
  while (sum.size() < kLongNodes) {
    sum.push_back(Token::variable(static_cast<std::uint32_t>(sum.size() % 3)));
    sum.push_back(Token::constant(1.0 + static_cast<double>(sum.size()) / kLongNodes));
    sum.push_back(Token::operation(Op::kMul));
    sum.push_back(Token::operation(Op::kAdd));
  }
  const GeneratorOptions options{.seed = 5, .min_nodes = kLongNodes, .max_nodes = kLongNodes, .variables = 3};
  return {{"chain", Expression::create(std::move(chain)).value()},
          {"sum", Expression::create(std::move(sum)).value()},
          {"random", ExpressionGenerator(options).batch(1).at(0)}};
}

}  // namespace srjit
