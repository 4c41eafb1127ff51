// Tokens as numbers: operators by their codes (op_codes.def), variables and parameters as negative numbers. The same in
// every version of the library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "ir/expression.h"
#include "ir/op.h"

namespace srjit {

/// The code of a token whose value is in the array of constants.
inline constexpr std::int32_t kConstantCode = 0;
/// The code of parameter 0.
inline constexpr std::int32_t kFirstParameterCode = -(1 << 30);
/// The code of variable `index`, at most Expression::kMaxIndex: -1, -2, ...
constexpr std::int32_t variableCode(std::uint32_t index) noexcept { return -1 - static_cast<std::int32_t>(index); }
/// The code of parameter `index`, at most Expression::kMaxIndex: kFirstParameterCode, kFirstParameterCode - 1, ...
constexpr std::int32_t parameterCode(std::uint32_t index) noexcept {
  return kFirstParameterCode - static_cast<std::int32_t>(index);
}
/// The code of an operator (op_codes.def): positive, and the same in every version of the library.
std::int32_t codeOf(Op op) noexcept;
/// The operator of a code; nothing for a code that no operator has.
std::optional<Op> opOfCode(std::int32_t code) noexcept;

/// By code: the operators of codes that operators have.
extern const std::array<Op, kMostOps> kOpsByCode;
/// Of the code of a variable or parameter, which of the two, and its index.
constexpr bool isParameterCode(std::int32_t code) noexcept { return code <= kFirstParameterCode; }
constexpr std::uint32_t indexOfCode(std::int32_t code) noexcept {
  return static_cast<std::uint32_t>((isParameterCode(code) ? kFirstParameterCode : -1) - code);
}
/// By code from 0 on: operands of its token; -1 for a code that nothing has.
extern const std::array<std::int16_t, kMostOps> kAritiesByCode;
/// Operands of a token; -1 for a code that nothing has, and for an index that is too large.
inline int arityOfCode(std::int32_t code) noexcept {
  if (code >= 0)
    return code < static_cast<std::int32_t>(kMostOps) ? kAritiesByCode[static_cast<std::size_t>(code)] : -1;
  return indexOfCode(code) <= Expression::kMaxIndex ? 0 : -1;
}
/// The token of a valid code that is not kConstantCode.
inline Token tokenOf(std::int32_t code) noexcept {
  if (code > 0) return Token::operation(kOpsByCode[static_cast<std::size_t>(code)]);
  const std::uint32_t index = indexOfCode(code);
  return isParameterCode(code) ? Token::parameter(index) : Token::variable(index);
}
/// The other way: the code of a token.
inline std::int32_t codeOf(const Token& token) noexcept {
  switch (token.kind) {
    case Token::Kind::kConstant:
      return kConstantCode;
    case Token::Kind::kVariable:
      return variableCode(token.index);
    case Token::Kind::kParameter:
      return parameterCode(token.index);
    case Token::Kind::kOp:
      return codeOf(token.op);
  }
  __builtin_unreachable();
}

}  // namespace srjit
