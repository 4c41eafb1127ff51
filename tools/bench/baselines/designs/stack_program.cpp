#include "tools/bench/baselines/designs/stack_program.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include "tools/bench/baselines/design.h"
#include "tools/bench/baselines/operators.h"
#include "tools/bench/failure.h"

namespace srjit {

StackToken stackToken(const Token& token, std::uint32_t first_parameter) {
  switch (token.kind) {
    case Token::Kind::kConstant:
      return {StackToken::kConstant, std::bit_cast<std::uint32_t>(static_cast<float>(token.value))};
    case Token::Kind::kVariable:
      return {StackToken::kVariable, token.index};
    case Token::Kind::kParameter:
      return {StackToken::kParameter, first_parameter + token.index};
    case Token::Kind::kOp:
      break;
  }
  return {StackToken::kFirstOp + static_cast<std::uint32_t>(baselineOpNumber(token.op)), 0};
}

void checkStackHeight(const Expression& expression) {
  if (expression.stackHeight() > kStackEntries) {
    throw BenchFailure{{Errc::kUnsupported,
                        fmt::format("an expression needs a stack of {} values, but the baseline's has {}",
                                    expression.stackHeight(), kStackEntries),
                        {}}};
  }
}

StackPrograms stackPrograms(std::span<const Expression> expressions) {
  StackPrograms programs;
  programs.offsets.reserve(expressions.size() + 1);
  for (const Expression& expression : expressions) {
    programs.offsets.push_back(programs.offsets.back() + static_cast<std::uint32_t>(expression.size()));
  }
  programs.tokens.resize(programs.offsets.back());
  const std::vector<std::uint32_t> parameters = parameterOffsets(expressions);
  tbb::parallel_for(std::size_t{0}, expressions.size(), [&](std::size_t e) {
    checkStackHeight(expressions[e]);
    std::ranges::transform(expressions[e].tokens(), programs.tokens.begin() + programs.offsets[e],
                           [&](const Token& token) { return stackToken(token, parameters[e]); });
  });
  return programs;
}

}  // namespace srjit
