// Expressions: validation, properties, equality.
#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "ir/expression.h"

namespace srjit {
namespace {

using Tokens = std::vector<Token>;

TEST(Expression, ReportsSizeHeightAndInputCounts) {
  const auto e = Expression::create({Token::variable(3), Token::constant(2), Token::parameter(1),
                                     Token::operation(Op::kMul), Token::operation(Op::kAdd)});
  ASSERT_TRUE(e);
  EXPECT_EQ(e->size(), 5u);
  EXPECT_EQ(e->stackHeight(), 3u);
  EXPECT_EQ(e->variableCount(), 4u);
  EXPECT_EQ(e->parameterCount(), 2u);
}

TEST(Expression, RejectsInvalidTokens) {
  const std::string no_operator =
      "token 3 has the operator number 200, but there are " + std::to_string(kOpCount) + " operators";
  const struct {
    Tokens tokens;
    std::size_t column;
    const char* message;
  } cases[] = {
      {{}, 1, "an expression needs at least one token"},
      {{Token::operation(Op::kSin)}, 1, "'sin' needs 1 operand, but 0 precede it"},
      {{Token::constant(1), Token::operation(Op::kAdd)}, 2, "'add' needs 2 operands, but 1 precedes it"},
      {{Token::constant(1), Token::constant(2), Token::operation(Op::kFma)},
       3,
       "'fma' needs 3 operands, but 2 precede it"},
      {{Token::constant(1), Token::constant(2)}, 2, "the tokens leave 2 values, but an expression has one"},
      {{Token::variable(Expression::kMaxIndex + 1)}, 1, "x1048576 is above the largest index, 1048575"},
      {{Token::constant(0), Token::parameter(~0u), Token::operation(Op::kAdd)},
       2,
       "p4294967295 is above the largest index, 1048575"},
      {{Token::constant(1), Token::constant(2), Token::operation(static_cast<Op>(200))}, 3, no_operator.c_str()},
      {{Token{static_cast<Token::Kind>(9)}}, 1, "token 1 has the kind number 9, but there are 4 kinds"},
  };
  for (const auto& c : cases) {
    const auto e = Expression::create(c.tokens);
    ASSERT_FALSE(e) << c.message;
    EXPECT_EQ(e.error().code, Errc::kInvalid);
    EXPECT_EQ(e.error().message, c.message);
    ASSERT_TRUE(e.error().where);
    EXPECT_EQ(e.error().where->line, 1u);
    EXPECT_EQ(e.error().where->column, c.column);
  }
}

TEST(Expression, AcceptsTheLargestIndex) {
  const auto e = Expression::create({Token::variable(Expression::kMaxIndex)});
  ASSERT_TRUE(e);
  EXPECT_EQ(e->variableCount(), Expression::kMaxIndex + 1);
}

TEST(Expression, EqualityComparesTokensBitwise) {
  const auto of = [](Token token) { return Expression::create({token}).value(); };
  EXPECT_EQ(of(Token::constant(1)), of(Token::constant(1)));
  EXPECT_FALSE(of(Token::constant(0.0)) == of(Token::constant(-0.0)));
  EXPECT_FALSE(of(Token::variable(0)) == of(Token::parameter(0)));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(of(Token::constant(nan)), of(Token::constant(-nan))) << "a NaN constant has one bit pattern";
}

TEST(Expression, SubtreeStartsAreFirstTokens) {
  const auto e = Expression::create({Token::variable(0), Token::variable(1), Token::operation(Op::kSin),
                                     Token::variable(2), Token::operation(Op::kFma), Token::operation(Op::kNeg)});
  ASSERT_TRUE(e);
  EXPECT_EQ(subtreeStarts(e->tokens()), (std::vector<std::uint32_t>{0, 1, 1, 3, 0, 0}));
}

TEST(Expression, AcceptsAMillionLevels) {
  Tokens tokens(1'000'001, Token::operation(Op::kNeg));
  tokens[0] = Token::variable(0);
  const auto e = Expression::create(std::move(tokens));
  ASSERT_TRUE(e);
  EXPECT_EQ(e->stackHeight(), 1u);
  const Expression copy = e.value();
  EXPECT_EQ(copy, e.value());
}

}  // namespace
}  // namespace srjit
