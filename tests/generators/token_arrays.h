// Expressions as arrays of codes, for what takes a PopulationView.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/population.h"

namespace srjit {

/// The tokens in prefix order.
inline std::vector<Token> prefixOf(const Expression& expression) {
  const auto tokens = expression.tokens();
  const std::vector<std::uint32_t> starts = subtreeStarts(tokens);
  std::vector<Token> prefix;
  std::vector<std::uint32_t> pending{static_cast<std::uint32_t>(tokens.size() - 1)};
  while (!pending.empty()) {
    const std::uint32_t at = pending.back();
    pending.pop_back();
    prefix.push_back(tokens[at]);
    // The last operand is pushed first, so the first is written next.
    std::uint32_t operand = at;
    for (int k = tokens[at].arity(); k-- > 0; operand = starts[operand - 1]) pending.push_back(operand - 1);
  }
  return prefix;
}

/// Expressions in arrays, as a program outside of the library would write them.
struct TokenArrays {
  std::vector<std::int32_t> codes;
  std::vector<double> constants;
  std::vector<std::int64_t> offsets{0};

  void add(const Token& token) {
    constants.push_back(token.kind == Token::Kind::kConstant ? token.value : 0);
    codes.push_back(codeOf(token));
  }
  void end() { offsets.push_back(static_cast<std::int64_t>(codes.size())); }
  void addPostfix(const Expression& expression) {
    for (const Token& token : expression.tokens()) add(token);
    end();
  }
  void addPrefix(const Expression& expression) {
    for (const Token& token : prefixOf(expression)) add(token);
    end();
  }
  PopulationView view(Notation notation = Notation::kPostfix) const { return {codes, constants, offsets, notation}; }
};

inline TokenArrays tokensOf(std::span<const Expression> expressions) {
  TokenArrays arrays;
  for (const Expression& expression : expressions) arrays.addPostfix(expression);
  return arrays;
}

}  // namespace srjit
