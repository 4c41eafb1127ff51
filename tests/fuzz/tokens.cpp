// Decodes any bytes to token arrays. Invariants: expressions of a population are accepted and refused as
// Expression::create() accepts and refuses their tokens, and one in prefix is the same as in postfix.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/population.h"
#include "ir/text.h"
#include "tests/fuzz/harness/bytes.h"
#include "tests/generators/token_arrays.h"

namespace {

using namespace srjit;
using fuzz::ByteReader;
using fuzz::require;

constexpr std::size_t kMostExpressions = 8;

/// Codes of all kinds, mostly of operators and small indices.
std::int32_t codeFrom(ByteReader& bytes) {
  const std::uint8_t kind = bytes.byte();
  if (kind < 96) return 1 + kind % 64;
  if (kind < 160) return variableCode(kind % 4);
  if (kind < 192) return parameterCode(kind % 3);
  if (kind < 240) return kConstantCode;
  if (kind < 248) return variableCode(Expression::kMaxIndex - 2 + kind % 4);
  if (kind < 252) return parameterCode(Expression::kMaxIndex - 2 + kind % 4);
  return bytes.little<std::int32_t>();
}

TokenArrays arraysFrom(ByteReader& bytes) {
  TokenArrays arrays;
  while (!bytes.isEmpty() && arrays.offsets.size() <= kMostExpressions) {
    const std::size_t tokens = bytes.byte() % 32;
    for (std::size_t i = 0; i < tokens; ++i) {
      arrays.codes.push_back(codeFrom(bytes));
      arrays.constants.push_back(arrays.codes.back() == kConstantCode ? bytes.number() : 0);
    }
    arrays.end();
  }
  return arrays;
}

/// The token of a code; nothing if there is none, whoever asks.
std::optional<Token> tokenFrom(std::int32_t code, double constant) {
  if (code == kConstantCode) return Token::constant(constant);
  if (code > 0) {
    const auto op = opOfCode(code);
    return op ? std::optional(Token::operation(*op)) : std::nullopt;
  }
  if (indexOfCode(code) > Expression::kMaxIndex) return std::nullopt;
  return tokenOf(code);
}

/// Expression `e` in postfix, read from right to left where it is in prefix: an independent way to turn it.
std::optional<std::vector<Token>> tokensOf(const PopulationView& view, std::size_t e) {
  const auto begin = static_cast<std::size_t>(view.offsets[e]), end = static_cast<std::size_t>(view.offsets[e + 1]);
  std::vector<Token> given;
  for (std::size_t i = begin; i < end; ++i) {
    if (view.constants.empty() && view.codes[i] == kConstantCode) return std::nullopt;
    const auto token = tokenFrom(view.codes[i], view.constants.empty() ? 0 : view.constants[i]);
    if (!token) return std::nullopt;
    given.push_back(*token);
  }
  if (view.notation == Notation::kPostfix) return given;
  std::vector<std::vector<Token>> stack;
  for (auto token = given.rbegin(); token != given.rend(); ++token) {
    std::vector<Token> whole;
    for (int k = 0; k < token->arity(); ++k) {
      if (stack.empty()) return std::nullopt;
      whole.insert(whole.end(), stack.back().begin(), stack.back().end());
      stack.pop_back();
    }
    whole.push_back(*token);
    stack.push_back(std::move(whole));
  }
  if (stack.size() != 1) return std::nullopt;
  return stack.front();
}

void checkPopulation(const PopulationView& view) {
  Population population;
  const std::span<Population::Block> blocks = population.makeBlocks(view.size());
  std::vector<bool> accepted;
  for (std::size_t e = 0; e < view.size(); ++e) {
    const Status status = blocks[e / Population::kBlock].add(view, e);
    accepted.push_back(status.ok());
    if (!status) {
      const std::size_t tokens = static_cast<std::size_t>(view.offsets[e + 1] - view.offsets[e]);
      const auto& error = status.error();
      require(!error.message.empty(), "an error has a message");
      require(!error.where || (error.where->column >= 1 && error.where->column <= tokens + 1), "a place is a token");
    }
  }
  population.finish();
  std::size_t parameters = 0;
  for (std::size_t e = 0; e < view.size(); ++e) {
    const auto tokens = tokensOf(view, e);
    const auto expected =
        tokens ? Expression::create(*tokens) : Result<Expression>(Error{Errc::kInvalid, "no token", {}});
    require(expected.ok() == accepted[e], "a population accepts what Expression::create() accepts");
    require(population.parameterOffset(e) == parameters, "parameters are behind one another");
    if (!expected) {
      require(population[e].size() == 1, "a bad expression is the constant NaN");
      continue;
    }
    parameters += expected->parameterCount();
    require(population[e].expression() == *expected, "an expression keeps its tokens");
    require(population[e].variableCount() == expected->variableCount(), "and its variables");
  }
}

void checkNotations(const PopulationView& view) {
  TokenArrays prefix, postfix;
  for (std::size_t e = 0; e < view.size(); ++e) {
    auto tokens = tokensOf(view, e);
    if (!tokens) continue;
    const auto expression = Expression::create(*std::move(tokens));
    if (!expression) continue;
    prefix.addPrefix(*expression);
    postfix.addPostfix(*expression);
  }
  Population from_prefix, from_postfix;
  for (auto* const one : {&from_prefix, &from_postfix}) {
    const PopulationView arrays = one == &from_prefix ? prefix.view(Notation::kPrefix) : postfix.view();
    const auto blocks = one->makeBlocks(arrays.size());
    for (std::size_t e = 0; e < arrays.size(); ++e) {
      require(blocks[e / Population::kBlock].add(arrays, e).ok(), "valid tokens are accepted");
    }
    one->finish();
  }
  for (std::size_t e = 0; e < from_prefix.size(); ++e) {
    require(from_prefix[e].expression() == from_postfix[e].expression(), "both notations give the same");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ByteReader bytes(data, size);
  const std::uint8_t options = bytes.byte();
  const Notation notation = options % 2 == 1 ? Notation::kPrefix : Notation::kPostfix;
  TokenArrays arrays = arraysFrom(bytes);
  if (options % 4 >= 2) arrays.constants.clear();
  checkPopulation(arrays.view(notation));
  checkNotations(arrays.view(notation));
  // Now wrong ones: only checkArrays() decides.
  if (options >= 128) {
    arrays.offsets[options % arrays.offsets.size()] += static_cast<std::int8_t>(options << 1);
    const auto& offsets = arrays.offsets;
    const bool is_right = offsets.front() == 0 && std::ranges::is_sorted(offsets) &&
                          offsets.back() == static_cast<std::int64_t>(arrays.codes.size());
    require(checkArrays(arrays.view(notation)).ok() == is_right, "offsets are checked");
  }
  return 0;
}
