// An expression: an immutable, validated postfix program.
//
// parse() makes one of text (ir/text.h). From a tree of your own it is made without text: append the tokens of the
// operands, then that of the operator, and give all of them to Expression::create(), which checks them. x0 * 2 + p0 is
//
//   #include <srjit/ir/ops.h>  // the operators by name
//   Expression::create({Token::variable(0), Token::constant(2), Token::operation(Op::kMul), Token::parameter(0),
//                       Token::operation(Op::kAdd)})
//
// and a tree is
//
//   void append(const Tree& tree, std::vector<Token>& tokens) {
//     for (const Tree& operand : tree.operands) append(operand, tokens);  // the left one first
//     tokens.push_back(tree.token);
//   }
//   std::vector<Token> tokens;
//   append(tree, tokens);
//   Result<Expression> expression = Expression::create(std::move(tokens));
//
// findOp("sin") of ir/ops.h is the operator of a name. The other way, tokens() is read from left to right with a stack:
// a token takes arity() values from it and puts one there. All functions here are thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/error.h"
#include "ir/op.h"

namespace srjit {

/// One postfix token, 16 bytes.
struct Token {
  enum class Kind : std::uint8_t { kConstant, kVariable, kParameter, kOp };

  Kind kind = Kind::kConstant;
  Op op{};                  ///< kOp only
  std::uint32_t index = 0;  ///< kVariable and kParameter only
  double value = 0;         ///< kConstant only

  static Token constant(double value) { return {Kind::kConstant, Op{}, 0, value}; }
  static Token variable(std::uint32_t index) { return {Kind::kVariable, Op{}, index, 0}; }
  static Token parameter(std::uint32_t index) { return {Kind::kParameter, Op{}, index, 0}; }
  static Token operation(Op op) { return {Kind::kOp, op, 0, 0}; }

  int arity() const noexcept { return kind == Kind::kOp ? arityOf(op) : 0; }

  /// Equality of meaning: constants compare by their bits, so that NaN equals itself and -0 differs from 0.
  friend bool operator==(const Token& a, const Token& b) noexcept;
};

/// The needs of a program's evaluation.
struct ProgramNeeds {
  std::size_t stack_height = 0;  ///< the largest number of values that evaluating the tokens in order holds at once
  std::uint32_t variables = 0;   ///< one more than the largest index, 0 without any
  std::uint32_t parameters = 0;  ///< as variables
};

enum class Language;
class ColumnNames;

/// A non-empty postfix program that leaves exactly one value. Copying shares the tokens; safe to read from any thread.
/// One that was moved from may only be assigned to and destroyed.
class Expression {
 public:
  Expression(const Expression& other) noexcept : body_(other.body_) {
    if (body_ != nullptr) body_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  Expression(Expression&& other) noexcept : body_(std::exchange(other.body_, nullptr)) {}
  Expression& operator=(Expression other) noexcept {
    std::swap(body_, other.body_);
    return *this;
  }
  ~Expression() {
    if (body_ != nullptr) release();
  }

  /// Checks `tokens` and takes them; every NaN among constants becomes the one quiet NaN without sign. Errors
  /// (kInvalid): no tokens, a kind or operator that is no enumerator, an operator that lacks operands, values left
  /// over, a variable or parameter index above kMaxIndex; Span columns then count tokens from 1.
  static Result<Expression> create(std::vector<Token> tokens);

  std::span<const Token> tokens() const noexcept { return {body_->tokens(), body_->size}; }
  std::size_t size() const noexcept { return body_->size; }
  const ProgramNeeds& needs() const noexcept { return body_->needs; }

  std::size_t stackHeight() const noexcept { return needs().stack_height; }
  std::uint32_t variableCount() const noexcept { return needs().variables; }
  std::uint32_t parameterCount() const noexcept { return needs().parameters; }

  friend bool operator==(const Expression& a, const Expression& b) noexcept;

  static constexpr std::uint32_t kMaxIndex = (1u << 20) - 1;

 private:
  friend Result<Expression> parse(std::string_view text, Language language, const ColumnNames& columns,
                                  std::size_t max_nodes);

  /// One block of memory, with the tokens behind it.
  struct Body {
    std::atomic<std::size_t> owners;
    std::size_t size;
    ProgramNeeds needs;

    const Token* tokens() const noexcept { return reinterpret_cast<const Token*>(this + 1); }
  };
  static_assert(sizeof(Body) % alignof(Token) == 0);

  /// `tokens` must be a valid program with these needs.
  Expression(std::span<const Token> tokens, const ProgramNeeds& needs);
  void release() noexcept;

  Body* body_;
};

/// For every token, the index of the first token of its subtree. Linear in the tokens; `tokens` must be a valid
/// program.
std::vector<std::uint32_t> subtreeStarts(std::span<const Token> tokens);

/// Levels of the expression's tree: 1 for a constant, a variable or a parameter, else one more than the largest depth
/// of an operand. Linear in the tokens; not recursive.
std::size_t depth(const Expression& expression);

/// `expression` with the constant values[j] in place of every parameter p<j>, such as the values that a fit gave. The
/// result has no parameters; without any, it is `expression` itself. Errors (kInvalid): values.size() is not
/// expression.parameterCount().
Result<Expression> withParameters(const Expression& expression, std::span<const double> values);

/// Of the meaning that == compares: equal expressions have equal hashes. The same in every process of one version of
/// the library; a new operator changes nothing about expressions without it. Linear in the tokens.
std::uint64_t hashOf(const Expression& expression) noexcept;

}  // namespace srjit

template <>
struct std::hash<srjit::Expression> {
  std::size_t operator()(const srjit::Expression& expression) const noexcept {
    return static_cast<std::size_t>(srjit::hashOf(expression));
  }
};
