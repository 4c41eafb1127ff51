// One expression in a simpler form.
#include "passes/simplify_expression.h"

#include <vector>

#include <gtest/gtest.h>

#include "ir/reference.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

std::string simplified(std::string_view text, Math math) {
  return print(simplify(infix(text), math), Language::kInfix);
}

TEST(SimplifyExpression, TheModeSaysWhatIsKept) {
  EXPECT_EQ(print(simplify(infix("x0*1 + 2*3 + (x1 - x1)")), Language::kInfix), "x0 + 6") << "as the header shows";
  const struct {
    const char *text, *strict, *precise, *fast;
  } cases[] = {
      {"x0 + 0", "x0 + 0", "x0 + 0", "x0"},
      {"x0^2 * exp(0)", "x0^2", "square(x0)", "square(x0)"},
      {"x0^2 * cos(0)", "x0^2", "square(x0)", "square(x0)"},
      {"p0*0 + p1", "p1 + p0 * 0", "p1 + p0 * 0", "p1"},
      {"sin(1)", "0.8414709848078965", "0.8414709848078965", "0.8414709848078965"},
      {"-(-x0)", "x0", "x0", "x0"},
      {"2*3", "6", "6", "6"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(simplified(c.text, Math::kStrict), c.strict);
    EXPECT_EQ(simplified(c.text, Math::kPrecise), c.precise);
    EXPECT_EQ(simplified(c.text, Math::kFast), c.fast);
  }
}

// Kernels compute most of them by exp2 and log2; x0^0.5 and x0^3 have operators of their own.
TEST(SimplifyExpression, PowersStayPowers) {
  const struct {
    const char *text, *fast;
  } cases[] = {
      {"x0^1.37 * x1", "x1 * x0^1.37"},
      {"x0^p0", "x0^p0"},
      {"abs(x0)^x1", "abs(x0)^x1"},
      {"exp2(x0 * log2(x1))", "x1^x0"},
      {"x0^0.5", "sqrt(x0)"},
      {"x0^3", "cube(x0)"},
      {"exp2(3 * log2(x0))", "exp2(3 * log2(x0))"},
      {"sin(x0^2.5)^1.5", "sin(x0^2.5)^1.5"},
  };
  for (const auto& c : cases) EXPECT_EQ(simplified(c.text, Math::kFast), c.fast);
  EXPECT_EQ(simplified("exp2(x0 * log2(x1))", Math::kPrecise), "exp2(x0 * log2(x1))");
}

TEST(SimplifyExpression, SignsStandWherePeoplePutThem) {
  const struct {
    const char *text, *strict, *fast;
  } cases[] = {
      {"x0 + -3", "x0 - 3", "x0 - 3"},
      {"x0 - 3", "x0 - 3", "x0 - 3"},
      {"x0 - x1 * -2.25", "x0 + x1 * 2.25", "x0 + x1 * 2.25"},
      {"x0 + x1 * -2.25", "x0 - x1 * 2.25", "x0 - x1 * 2.25"},
      {"x1 - x0 * (-1e25 / x1)", "x1 + x0 * (1e+25 / x1)", "x1 + x0 * (1e+25 / x1)"},
      {"-3 * (x0 / -x1)", "3 * (x0 / x1)", "3 * (x0 / x1)"},
      {"x0 * -2 + x1", "x1 - x0 * 2", "x1 - x0 * 2"},
      {"x0 * -2 - x1 * -3", "x1 * 3 - x0 * 2", "x1 * 3 - x0 * 2"},
      {"x0 * -2 - x1", "x0 * -2 - x1", "x0 * -2 - x1"},
      {"-2 / x0 - 1", "-2 / x0 - 1", "-2 / x0 - 1"},
      {"x0 + -0", "x0", "x0"},
  };
  const auto same = [](const char* a, const std::string& b) {  // whatever the order of operands
    return simplify(infix(a), Math::kStrict) == simplify(infix(b), Math::kStrict) && infix(b).size() <= infix(a).size();
  };
  for (const auto& c : cases) {
    const std::string strict = simplified(c.text, Math::kStrict), fast = simplified(c.text, Math::kFast);
    EXPECT_TRUE(same(c.strict, strict)) << c.text << " became " << strict;
    EXPECT_TRUE(same(c.fast, fast)) << c.text << " became " << fast;
    EXPECT_EQ(strict.find("+ -"), std::string::npos) << strict;
    EXPECT_EQ(strict.find("- -"), std::string::npos) << strict;
  }
}

TEST(SimplifyExpression, WhatIsRedundantGoes) {
  const struct {
    const char *text, *fast;
  } cases[] = {
      {"5 + (x0 - (5 - x1))", "x0 + x1"},
      {"exp(2 + log(x0))", "x0 * 7.38905609893065"},
      {"x0^2 / x0", "x0"},
      {"x0 / x0^3", "inv(square(x0))"},
      {"9999999 * (x0 * x1) + x0 * x1", "10000000 * (x0 * x1)"},
      {"10^x0", "10^x0"},
      {"2.5^(x0 + x1)", "2.5^(x0 + x1)"},
      {"2.718281828459045^x0", "exp(x0)"},
      {"x0 / 3", "x0 / 3"},
      {"x0 * 0.125", "x0 * 0.125"},
      {"x1 - x0 / 3", "x1 - x0 / 3"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(simplify(infix(c.text)), simplify(infix(c.fast))) << simplified(c.text, Math::kFast);
    EXPECT_EQ(simplify(infix(c.text)).size(), infix(c.fast).size()) << simplified(c.text, Math::kFast);
  }
  EXPECT_EQ(simplified("10^x0", Math::kFast), "10^x0");
  EXPECT_EQ(simplified("2.718281828459045^x0", Math::kFast), "exp(x0)");
  EXPECT_EQ(simplified("x0 / 3", Math::kFast), "x0 / 3");
}

TEST(SimplifyExpression, ConstantsAreRoundedToThePrecision) {
  EXPECT_EQ(simplify(infix("x0 * 0.1")), infix("x0 * 0.1"));
  EXPECT_EQ(simplify(infix("x0 * 0.1"), Math::kFast, Precision::kF32),
            Expression::create({Token::variable(0), Token::constant(0.1f), Token::operation(Op::kMul)}).value());
}

TEST(SimplifyExpression, ParametersKeepTheirIndices) {
  const Expression after = simplify(infix("p2 * x0 + p0 * 1 + 0 * p5"));
  EXPECT_EQ(after.parameterCount(), 3u);
  const std::vector<double> variables = {3}, parameters = {10, 0, 0.5};
  EXPECT_EQ(evaluateReference(after, variables, parameters), 11.5);
}

// The strict mode keeps every bit, on all operators.
TEST(SimplifyExpression, StrictKeepsBits) {
  ExpressionGenerator expressions = expressionsOfAllOperators(21);
  Random random(22);
  for (int i = 0; i < 500; ++i) {
    const Expression before = expressions.next(), after = simplify(before, Math::kStrict);
    for (int k = 0; k < 8; ++k) {
      std::vector<double> variables, parameters;
      for (int v = 0; v < 3; ++v) variables.push_back(randomValue(random, Spread::kSpecial, Precision::kF64));
      for (int p = 0; p < 2; ++p) parameters.push_back(randomValue(random, Spread::kSpecial, Precision::kF64));
      const auto valueOf = [&](const Expression& e) {
        return evaluate<double>(graphOf(e, Precision::kF64), variables, parameters)[0];
      };
      ASSERT_TRUE(sameBits(valueOf(before), valueOf(after))) << textOf(before) << " became " << textOf(after);
    }
  }
}

TEST(SimplifyExpression, WhatIsSimpleStays) {
  ExpressionGenerator expressions = expressionsOfAllOperators(23);
  for (int i = 0; i < 5000; ++i) {
    const Expression before = expressions.next(), once = simplify(before), twice = simplify(once);
    ASSERT_EQ(twice, once) << textOf(before) << " became " << textOf(once) << " became " << textOf(twice);
  }
}

TEST(SimplifyExpression, DepthIsNoLimit) {
  std::vector<Token> tokens(300'001, Token::operation(Op::kNeg));
  tokens[0] = Token::variable(0);
  EXPECT_EQ(simplify(Expression::create(tokens).value()), infix("x0"));
  for (std::size_t i = 1; i < tokens.size(); ++i) tokens[i] = Token::operation(Op::kSin);
  const Expression sines = Expression::create(tokens).value();
  EXPECT_EQ(simplify(sines), sines);
}

}  // namespace
}  // namespace srjit
