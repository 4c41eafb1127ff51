#include "ir/expression.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include <fmt/format.h>

#include "ir/mix.h"
#include "ir/numbers/postfix.h"
#include "ir/ops.h"
#include "ir/token_errors.h"

namespace srjit {

void throwError(const Error& error) { throw ErrorException(error); }

namespace {

/// The fault of an enumerator that a caller made of a number; empty for a token without one.
std::string faultOf(const Token& token) {
  constexpr std::size_t kKinds = static_cast<std::size_t>(Token::Kind::kOp) + 1;
  const auto kind = static_cast<std::size_t>(token.kind);
  if (kind >= kKinds) return fmt::format("has the kind number {}, but there are {} kinds", kind, kKinds);
  const auto op = static_cast<std::size_t>(token.op);
  if (token.kind == Token::Kind::kOp && op >= kOpCount) {
    return fmt::format("has the operator number {}, but there are {} operators", op, kOpCount);
  }
  return {};
}

}  // namespace

bool operator==(const Token& a, const Token& b) noexcept {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Token::Kind::kConstant:
      return std::bit_cast<std::uint64_t>(a.value) == std::bit_cast<std::uint64_t>(b.value);
    case Token::Kind::kVariable:
    case Token::Kind::kParameter:
      return a.index == b.index;
    case Token::Kind::kOp:
      return a.op == b.op;
  }
  return false;
}

bool operator==(const Expression& a, const Expression& b) noexcept {
  return a.body_ == b.body_ || std::ranges::equal(a.tokens(), b.tokens());
}

Expression::Expression(std::span<const Token> tokens, const ProgramNeeds& needs) {
  body_ = new (::operator new(sizeof(Body) + tokens.size_bytes())) Body{1, tokens.size(), needs};
  std::memcpy(static_cast<void*>(body_ + 1), tokens.data(), tokens.size_bytes());
}

void Expression::release() noexcept {
  // The only owner need not count: no other thread may copy an expression while it is destroyed.
  if (body_->owners.load(std::memory_order_acquire) != 1 &&
      body_->owners.fetch_sub(1, std::memory_order_acq_rel) != 1) {
    return;
  }
  body_->~Body();
  ::operator delete(body_);
}

Result<Expression> Expression::create(std::vector<Token> tokens) {
  if (tokens.empty()) return noTokensError();
  ProgramNeeds needs;
  std::size_t height = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Token& token = tokens[i];
    if (std::string fault = faultOf(token); !fault.empty()) {
      return tokenError(i, fmt::format("token {} {}", i + 1, fault));
    }
    // One bit pattern for all NaNs, since no text form can tell them apart.
    if (std::isnan(token.value)) token.value = std::numeric_limits<double>::quiet_NaN();
    const auto arity = static_cast<std::size_t>(token.arity());
    if (height < arity) return operandsError(i, token.op, height, "precede");
    height = height - arity + 1;
    needs.stack_height = std::max(needs.stack_height, height);
    const bool variable = token.kind == Token::Kind::kVariable;
    if (variable || token.kind == Token::Kind::kParameter) {
      if (token.index > kMaxIndex) return indexError(i, variable, token.index);
      auto& count = variable ? needs.variables : needs.parameters;
      count = std::max(count, token.index + 1);
    }
  }
  if (height != 1) return leftValuesError(tokens.size(), height);
  return Expression(tokens, needs);
}

std::vector<std::uint32_t> subtreeStarts(std::span<const Token> tokens) {
  std::vector<std::uint32_t> starts(tokens.size());
  std::vector<std::uint32_t> open;
  for (std::uint32_t i = 0; i < tokens.size(); ++i) {
    const auto arity = static_cast<std::size_t>(tokens[i].arity());
    starts[i] = arity == 0 ? i : open[open.size() - arity];
    open.resize(open.size() - arity);
    open.push_back(starts[i]);
  }
  return starts;
}

std::size_t depth(const Expression& expression) {
  const auto deeper = [](Op, std::span<const std::size_t> operands) { return 1 + std::ranges::max(operands); };
  return foldPostfix<std::size_t>(expression.tokens(), [](const Token&) { return std::size_t{1}; }, deeper);
}

Result<Expression> withParameters(const Expression& expression, std::span<const double> values) {
  const std::size_t count = expression.parameterCount();
  if (values.size() != count) {
    return Error{Errc::kInvalid,
                 fmt::format("{} value{} for {} parameter{}: expected one for each of p0, p1, ...", values.size(),
                             values.size() == 1 ? "" : "s", count, count == 1 ? "" : "s"),
                 {}};
  }
  if (count == 0) return expression;
  std::vector<Token> tokens(expression.tokens().begin(), expression.tokens().end());
  for (Token& token : tokens) {
    if (token.kind == Token::Kind::kParameter) token = Token::constant(values[token.index]);
  }
  return Expression::create(std::move(tokens));
}

std::uint64_t hashOf(const Expression& expression) noexcept {
  std::uint64_t hash = expression.size();
  for (const Token& token : expression.tokens()) {
    hash = combine(hash, static_cast<std::uint64_t>(token.kind));
    switch (token.kind) {
      case Token::Kind::kConstant:
        hash = combine(hash, std::bit_cast<std::uint64_t>(token.value));
        break;
      case Token::Kind::kVariable:
      case Token::Kind::kParameter:
        hash = combine(hash, token.index);
        break;
      case Token::Kind::kOp:
        hash = combine(hash, nameHashOf(token.op));
        break;
    }
  }
  return hash;
}

}  // namespace srjit
