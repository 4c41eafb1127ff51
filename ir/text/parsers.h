// The parser of each text form, and what they write to; parseTokens() of text.h chooses among them. And the operators
// that infix writes as signs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "ir/ops.h"
#include "ir/text.h"
#include "ir/token_errors.h"

namespace srjit::text {

/// Appends the tokens of one program to an array. The parser sees to it that every operator has its operands, and that
/// a NaN has no sign.
class ProgramBuilder {
 public:
  /// `tokens` must outlive it; what they hold already is of other programs. `max_nodes`: as Limits has it.
  ProgramBuilder(std::vector<Token>& tokens, std::size_t max_nodes)
      : tokens_(tokens),
        first_(tokens.size()),
        longest_(max_nodes == 0 ? std::numeric_limits<std::size_t>::max() : max_nodes) {}

  void add(const Token& token) { add(token, static_cast<std::size_t>(token.arity())); }
  /// The same where the token's arity is known. Has no branches that depend on the token.
  void add(const Token& token, std::size_t arity) {
    tokens_.push_back(token);
    height_ = height_ + 1 - arity;
    highest_ = std::max(highest_, height_);
    std::uint32_t& count = counts_[static_cast<std::size_t>(token.kind)];
    count = std::max(count, token.index + 1);
  }

  /// Whether this program has no token yet.
  bool empty() const noexcept { return tokens_.size() == first_; }
  /// Whether it has more tokens than it may have, `waiting` tokens that are still to be added included. A parser asks
  /// often enough that memory does not grow much further.
  bool isTooLong(std::size_t waiting = 0) const noexcept { return tokens_.size() - first_ + waiting > longest_; }
  /// Of a program that is too long, with the place of what the parser reads.
  Error tooLong(const Span& where) const { return nodesBeyond(longest_, where); }
  /// Values that its tokens leave.
  std::size_t height() const noexcept { return height_; }
  ProgramNeeds needs() const noexcept {
    const auto countOf = [&](Token::Kind kind) { return counts_[static_cast<std::size_t>(kind)]; };
    return {highest_, countOf(Token::Kind::kVariable), countOf(Token::Kind::kParameter)};
  }

 private:
  std::vector<Token>& tokens_;
  const std::size_t first_, longest_;
  std::size_t height_ = 0, highest_ = 0;
  std::array<std::uint32_t, 4> counts_{};  ///< by kind: one more than the largest index
};

/// Each parser appends to `tokens`, also where it fails. `max_nodes` is that of parse(). `places`, if given, gets the
/// place of each token's text.
Result<ProgramNeeds> parseInfix(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens,
                                std::size_t max_nodes, std::vector<TextRange>* places = nullptr);
Result<ProgramNeeds> parsePostfix(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens,
                                  std::size_t max_nodes);
Result<ProgramNeeds> parsePrefix(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens,
                                 std::size_t max_nodes);
Result<ProgramNeeds> parseJson(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens,
                               std::size_t max_nodes);

/// The error (kSyntax) for `text` that nlohmann's parser refused, in our own words. `what` is the text of the parser's
/// exception, and [offset, offset + length) the token at fault; where the text ends too early, the place is its end.
Error malformedJson(std::string_view text, std::size_t offset, std::size_t length, std::string_view what);

/// Levels of the infix grammar (text.h), loosest first.
enum : int { kSum = 1, kTerm = 2, kUnary = 3, kPower = 4, kAtom = 5 };

/// An operator that infix writes as a sign: its own level, and the loosest levels that its operands may have without
/// parentheses.
struct Sign {
  std::string_view text;
  Op op;
  int level, left, right;
};

/// '-' before an operand is kNegation; the others stand between two.
inline constexpr Sign kNegation = {"-", Op::kNeg, kUnary, kUnary, kUnary};
inline constexpr std::array<Sign, 6> kSigns = {{
    {"+", Op::kAdd, kSum, kSum, kTerm},
    {"-", Op::kSub, kSum, kSum, kTerm},
    {"*", Op::kMul, kTerm, kTerm, kUnary},
    {"/", Op::kDiv, kTerm, kTerm, kUnary},
    {"^", Op::kPow, kPower, kAtom, kUnary},
    {"**", Op::kPow, kPower, kAtom, kUnary},
}};

/// The sign that writes `op`, nullptr if a call does.
constexpr const Sign* findSign(Op op) {
  if (op == kNegation.op) return &kNegation;
  for (const Sign& sign : kSigns) {
    if (sign.op == op) return &sign;
  }
  return nullptr;
}

}  // namespace srjit::text
