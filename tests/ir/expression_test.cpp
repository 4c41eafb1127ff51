// Expressions: validation, facts, equality, and functions of them.
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <unordered_set>

#include <gtest/gtest.h>

#include "ir/expression.h"
#include "ir/text.h"

#include "ir/ops.h"

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

TEST(Expression, CopiesShareTokens) {
  std::optional<Expression> first = Expression::create({Token::variable(1), Token::operation(Op::kSin)}).value();
  const Expression same = Expression::create({Token::variable(1), Token::operation(Op::kSin)}).value();
  Expression copy = *first;
  EXPECT_EQ(copy.tokens().data(), first->tokens().data());
  Expression moved = std::move(*first);
  first.reset();
  EXPECT_EQ(moved, same);
  Expression& alias = moved;
  moved = alias;
  EXPECT_EQ(moved, same);
  moved = Expression::create({Token::constant(1)}).value();
  EXPECT_EQ(copy, same);
  copy = std::move(moved);
  EXPECT_EQ(copy, Expression::create({Token::constant(1)}).value());
}

TEST(Expression, EqualityComparesTokensBitwise) {
  const auto of = [](Token token) { return Expression::create({token}).value(); };
  EXPECT_EQ(of(Token::constant(1)), of(Token::constant(1)));
  EXPECT_FALSE(of(Token::constant(0.0)) == of(Token::constant(-0.0)));
  EXPECT_FALSE(of(Token::variable(0)) == of(Token::parameter(0)));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(of(Token::constant(nan)), of(Token::constant(-nan))) << "a NaN constant has one bit pattern";
}

/// A tree as a program of its own has it.
struct Tree {
  Token token;
  std::vector<Tree> operands = {};
};

// As the header shows.
void append(const Tree& tree, std::vector<Token>& tokens) {
  for (const Tree& operand : tree.operands) append(operand, tokens);
  tokens.push_back(tree.token);
}

TEST(Expression, IsMadeOfATreeWithoutText) {
  const Tree tree{Token::operation(Op::kSub),
                  {{Token::operation(*findOp("sin")), {{Token::variable(2)}}},
                   {Token::operation(Op::kMul), {{Token::parameter(0)}, {Token::constant(2)}}}}};
  Tokens tokens;
  append(tree, tokens);
  const auto e = Expression::create(std::move(tokens));
  ASSERT_TRUE(e);
  EXPECT_EQ(print(*e, Language::kInfix), "sin(x2) - p0 * 2");
}

TEST(Expression, DepthCountsLevels) {
  const auto of = [](const char* text) { return depth(parse(text, Language::kInfix).value()); };
  EXPECT_EQ(of("x0"), 1u);
  EXPECT_EQ(of("sin(x0)"), 2u);
  EXPECT_EQ(of("x0 + x1 * x2"), 3u);
  EXPECT_EQ(of("(x0 * x1 + 1) * p0"), 4u) << "the left operand is the deeper one";
  EXPECT_EQ(of("fma(x0, x1, sqrt(abs(x2)))"), 4u);
  EXPECT_EQ(of("fma(sqrt(abs(x2)), x0, x1)"), 4u);
}

TEST(Expression, ParametersBecomeConstants) {
  const Expression e = parse("p1 * x0 + sin(p0) * p1", Language::kInfix).value();
  const auto bound = withParameters(e, std::vector{0.1, -2.5});
  ASSERT_TRUE(bound);
  EXPECT_EQ(print(*bound, Language::kInfix), "-2.5 * x0 + sin(0.1) * -2.5");
  EXPECT_EQ(bound->parameterCount(), 0u);
  EXPECT_EQ(e.parameterCount(), 2u) << "the expression stays";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(withParameters(e, std::vector{nan, 1.0}).value(), withParameters(e, std::vector{-nan, 1.0}).value());
  const Expression without = parse("x0 + 1", Language::kInfix).value();
  EXPECT_EQ(withParameters(without, {}).value(), without);
}

TEST(Expression, EveryParameterNeedsItsValue) {
  const auto message = [](const char* text, std::vector<double> values) {
    const auto bound = withParameters(parse(text, Language::kInfix).value(), values);
    EXPECT_FALSE(bound) << text;
    EXPECT_EQ(bound.error().code, Errc::kInvalid);
    return bound.error().message;
  };
  EXPECT_EQ(message("p0 + p1", {1}), "1 value for 2 parameters: expected one for each of p0, p1, ...");
  EXPECT_EQ(message("p0", {1, 2}), "2 values for 1 parameter: expected one for each of p0, p1, ...");
  EXPECT_EQ(message("x0", {1}), "1 value for 0 parameters: expected one for each of p0, p1, ...");
  EXPECT_EQ(message("p1", {1}), "1 value for 2 parameters: expected one for each of p0, p1, ...")
      << "also where an index is not used";
}

TEST(Expression, HashIsConsistentWithEquality) {
  const auto of = [](Token token) { return Expression::create({token}).value(); };
  const std::hash<Expression> hash;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(hash(of(Token::constant(nan))), hash(of(Token::constant(-nan))));
  // What a kind does not use does not count.
  Token variable = Token::variable(3);
  variable.value = 7;
  variable.op = Op::kSin;
  ASSERT_EQ(of(variable), of(Token::variable(3)));
  EXPECT_EQ(hash(of(variable)), hash(of(Token::variable(3))));
  EXPECT_NE(hash(of(Token::constant(0.0))), hash(of(Token::constant(-0.0))));
  EXPECT_NE(hash(of(Token::variable(0))), hash(of(Token::parameter(0))));
  const auto parsed = [](const char* text) { return parse(text, Language::kInfix).value(); };
  EXPECT_NE(hash(parsed("x0 - x1")), hash(parsed("x1 - x0")));
  std::unordered_set<Expression> set;
  for (const char* text : {"x0 + 1", "x0+1", "x0 + 1.0", "1 + x0", "x0 + 2"}) set.insert(parsed(text));
  EXPECT_EQ(set.size(), 3u);
}

// A new row of ops.def must not change the hashes of expressions without it.
TEST(Expression, HashDependsOnOperatorNamesNotOnTheirNumbers) {
  EXPECT_EQ(hashOf(parse("x0 + x1", Language::kInfix).value()), 18168902790015950983u);
  EXPECT_EQ(hashOf(parse("erf(x0) * 2.5 - max(p1, x3)", Language::kInfix).value()), 7670481717563630784u);
}

TEST(Expression, SubtreeStarts) {
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
  EXPECT_EQ(depth(copy), 1'000'001u);
  EXPECT_EQ(hashOf(copy), hashOf(e.value()));
}

}  // namespace
}  // namespace srjit
