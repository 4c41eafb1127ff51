// The errors of tokens of a postfix or prefix program, and of their number: the same words for tokens and for codes.
// Spans count tokens from 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "ir/error.h"
#include "ir/expression.h"
#include "ir/ops.h"

namespace srjit {

inline Error tokenError(std::size_t position, std::string message) {
  return {Errc::kInvalid, std::move(message), Span{1, position + 1, 1}};
}
inline Error noTokensError() { return tokenError(0, "an expression needs at least one token"); }
/// `verb` is "precede" or "follow".
inline Error operandsError(std::size_t position, Op op, std::size_t found, std::string_view verb) {
  const int arity = arityOf(op);
  return tokenError(position, fmt::format("'{}' needs {} operand{}, but {} {}{} it", infoOf(op).name, arity,
                                          arity == 1 ? "" : "s", found, verb, found == 1 ? "s" : ""));
}
inline Error indexError(std::size_t position, bool is_variable, std::uint32_t index) {
  return tokenError(position, fmt::format("{}{} is above the largest index, {}", is_variable ? 'x' : 'p', index,
                                          Expression::kMaxIndex));
}
/// After the last of `tokens` tokens.
inline Error leftValuesError(std::size_t tokens, std::size_t values) {
  return tokenError(tokens - 1, fmt::format("the tokens leave {} values, but an expression has one", values));
}

/// Whether `found` is more than a limit of Limits, which is none if it is 0.
constexpr bool exceeds(std::size_t found, std::size_t limit) noexcept { return limit != 0 && found > limit; }
/// kLimit: an expression has `found` tokens.
inline Error tooManyNodes(std::size_t found, std::size_t max_nodes) {
  return {Errc::kLimit,
          fmt::format("{} nodes, but an expression may have at most {}; a larger max_nodes (--max-nodes) allows it",
                      found, max_nodes),
          {}};
}
/// Whether a call may have `times` times `found` tokens, or outputs. Errors: kLimit.
inline Status checkCallNodes(std::size_t found, std::size_t times, std::size_t max_call_nodes) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  const std::size_t all = times != 0 && found > kMost / times ? kMost : found * times;
  if (!exceeds(all, max_call_nodes)) return okStatus();
  return Error{Errc::kLimit,
               fmt::format("{} nodes in all expressions, but a call may have at most {}; fewer expressions per call, "
                           "or a larger max_call_nodes (--max-call-nodes) avoid this",
                           all, max_call_nodes),
               {}};
}
/// As tooManyNodes(), of a text that is not read any further.
inline Error nodesBeyond(std::size_t max_nodes, const Span& where) {
  Error error = tooManyNodes(max_nodes + 1, max_nodes);
  error.message = "at least " + error.message;
  error.where = where;
  return error;
}

}  // namespace srjit
