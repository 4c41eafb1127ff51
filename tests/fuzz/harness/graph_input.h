// Batches of expressions as bytes, for targets about graphs. An input has kOptions bytes for the target, kNumbers
// numbers of two bytes for values, and records of kRecord bytes, each a token. So inserting, removing or exchanging
// records changes one subtree and nothing behind it (graph_mutator.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "ir/expression.h"
#include "ir/ops.h"
#include "tests/fuzz/harness/bytes.h"
#include "tests/generators/population.h"

namespace srjit::fuzz {

class GraphInput {
 public:
  static constexpr std::size_t kOptions = 8, kNumbers = 12, kRecord = 4;
  static constexpr std::size_t kHead = kOptions + 2 * kNumbers;
  static constexpr std::uint32_t kVariables = 4, kParameters = 3;
  static constexpr std::size_t kMostExpressions = 6, kMostTokens = 80;
  /// What the first byte of a record says: a value below each is of that kind.
  enum Kind : std::uint8_t { kVariable = 3, kParameter = 4, kConstant = 6, kOperator = 15, kEnd = 16 };

  GraphInput(const std::uint8_t* data, std::size_t size)
      : options(data, std::min(size, kOptions)), numbers_(nullptr, 0), records_(nullptr, 0) {
    ByteReader all(data, size);
    all.take(kOptions);
    numbers_ = ByteReader(all.take(2 * kNumbers));
    records_ = ByteReader(all.rest());
  }

  ByteReader options;

  /// The bytes of the numbers, for a target that needs none.
  ByteReader mutation() const { return numbers_; }

  /// For up to kNumbers variables and parameters.
  std::vector<double> numbers(std::size_t count) { return numbers_.numbers(count); }

  /// At least one expression; operands that are missing are variables, and values left over are joined.
  std::vector<Expression> batch(std::size_t most = kMostExpressions) {
    std::vector<Expression> expressions;
    do {
      expressions.push_back(expression());
    } while (!records_.isEmpty() && expressions.size() < most);
    return expressions;
  }

 private:
  static inline const std::vector<Op> kOps = allOperators();
  static constexpr std::array kJoints = {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv};

  Expression expression() {
    std::vector<Token> tokens;
    std::size_t height = 0;
    bool ended = false;
    while (!ended && !records_.isEmpty() && tokens.size() < kMostTokens) ended = !record(tokens, height);
    if (height == 0) append(tokens, height, Token::variable(0));
    for (std::size_t i = 0; height > 1; ++i) append(tokens, height, Token::operation(kJoints[i % kJoints.size()]));
    return Expression::create(std::move(tokens)).value();
  }

  /// False at the end of an expression.
  bool record(std::vector<Token>& tokens, std::size_t& height) {
    ByteReader bytes(records_.take(kRecord));
    const std::uint32_t kind = bytes.below(kEnd);
    if (kind < kVariable) {
      append(tokens, height, Token::variable(bytes.below(kVariables)));
    } else if (kind < kParameter) {
      append(tokens, height, Token::parameter(bytes.below(kParameters)));
    } else if (kind < kConstant) {
      append(tokens, height, Token::constant(bytes.number()));
    } else if (kind < kOperator) {
      // A new row of ops.def changes what few bytes mean.
      const std::size_t pinned = pinnedOperators().size();
      append(tokens, height, Token::operation(kOps[stableChoice(bytes.byte(), pinned, kOps.size() - pinned)]));
    } else {
      return false;
    }
    return true;
  }

  /// Appends `token`, and variables for missing operands.
  static void append(std::vector<Token>& tokens, std::size_t& height, const Token& token) {
    const auto arity = static_cast<std::size_t>(token.arity());
    for (; height < arity; ++height) tokens.push_back(Token::variable(static_cast<std::uint32_t>(height % kVariables)));
    tokens.push_back(token);
    height += 1 - arity;
  }

  ByteReader numbers_, records_;
};

}  // namespace srjit::fuzz
