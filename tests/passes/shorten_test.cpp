// The shortest ways to write formulas.
#include "passes/shorten/forms.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "ir/reference.h"
#include "ir/rows.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

constexpr Interval kPositive{0.5, 3}, kAny{-2, 3}, kUnit{-1, 1}, kNegative{-3, -0.5};

std::string shortest(std::string_view text, const Interval& range, const Writing& writing = Writing::withAll()) {
  const std::vector<Interval> ranges(6, range);
  return textOf(shorten(infix(text), ranges, writing).front());
}

constexpr struct {
  const char* text;
  Interval range;
  const char* expected;
} kForms[] = {
    // Numbers come first, and fold through products, sums and functions.
    {"13.6 * (x1 * (x0 * 0.89))", kPositive, "12.104 * x0 * x1"},
    {"(2*x0 + 4) / (x0 + 2)", kPositive, "2"},
    {"5 / (2*x0 + 3*x1)", kPositive, "2.5 / (x0 + 1.5 * x1)"},
    {"sqrt(2*x0 + 3*x1) * 5", kPositive, "sqrt(50 * x0 + 75 * x1)"},
    {"2 / (x0*3)", kPositive, "0.6666666666666666 / x0"},
    {"x0 * 0.3333333333333333", kPositive, "x0 / 3"},
    {"2*3 + x0", kPositive, "x0 + 6"},
    {"sin(1) * 0", kPositive, "0"},
    {"log(2*x0 + 3)", kPositive, "log(2 * x0 + 3)"},
    {"2*log(x0) + 3", kPositive, "2 * log(x0) + 3"},
    {"1.2300000000000002 + -0.025699999999999966*log(x0)", kPositive, "1.23 - 0.0257 * log(x0)"},
    // Signs
    {"x1 - -1.36*sin(x0)", kPositive, "x1 + 1.36 * sin(x0)"},
    {"-(x0 - x1)", kAny, "x1 - x0"},
    {"x0 + -2.5", kAny, "x0 - 2.5"},
    {"x0 - x1 - x2 + 3", kAny, "x0 - x1 - x2 + 3"},
    {"3 - x0*2", kAny, "3 - 2 * x0"},
    {"sin(x1 - x0)", kAny, "sin(x1 - x0)"},
    {"cos(-x0)", kAny, "cos(x0)"},
    {"x1 - sin(-x0)", kAny, "x1 + sin(x0)"},
    {"square(-x0) * x1", kAny, "x1 * square(x0)"},
    // Powers
    {"square(x0) / x0", kPositive, "x0"},
    {"square(x0) / x0", kAny, "x0"},
    {"x0 * x0 * x0", kAny, "cube(x0)"},
    {"square(x0) * square(x1)", kAny, "square(x0 * x1)"},
    {"square(x0) / square(x1)", kAny, "square(x0 / x1)"},
    {"sqrt(x0) * sqrt(x1)", kPositive, "sqrt(x0 * x1)"},
    {"sqrt(x0 * x1) / x0", kPositive, "sqrt(x1 / x0)"},
    {"sqrt(square(x0) * x1)", kPositive, "x0 * sqrt(x1)"},
    {"sqrt(square(x0))", kNegative, "-x0"},
    {"sqrt(square(x0))", kAny, "abs(x0)"},
    {"sqrt(square(x0 + 2))", kUnit, "x0 + 2"},
    {"abs(x0) * abs(x1)", kAny, "abs(x0 * x1)"},
    {"abs(square(x0) + 1)", kAny, "square(x0) + 1"},
    {"x0^0.5 * x0^1.5", kPositive, "square(x0)"},
    // Fractions once
    {"x0 / x1 / x2", kPositive, "x0 / (x1 * x2)"},
    {"x0 / (x1 / x2)", kPositive, "x0 * x2 / x1"},
    {"inv(x0) * inv(x1)", kPositive, "inv(x0 * x1)"},
    {"x0 / (x1*x2) * x3", kPositive, "x0 * x3 / (x1 * x2)"},
    {"x0 / x1 + x2 / x1", kPositive, "(x0 + x2) / x1"},
    {"1 / (x0 * x1)", kPositive, "inv(x0 * x1)"},
    // Exponentials and logarithms
    {"exp(2.5 + log(x0))", kPositive, "12.182493960703473 * x0"},
    {"exp(log(square(x0)) / 2)", kAny, "abs(x0)"},
    {"exp(log(square(x0)) / 2)", kPositive, "x0"},
    {"exp(-52.6 - log(x0 * (x1 - 1) / x2))", kPositive, "1.4325515268863242e-23 * x2 / (x0 * (x1 - 1))"},
    {"exp(-52.6 - log(exp(x0/x1) - 1))", kPositive, "1.4325515268863242e-23 / (exp(x0 / x1) - 1)"},
    {"exp(x0) * exp(-x1)", kAny, "exp(x0 - x1)"},
    {"log(x0) - log(x1)", kPositive, "log(x0 / x1)"},
    {"log(x0 * exp(x1))", kPositive, "x1 + log(x0)"},
    {"exp(0.5 * log(x0) + log(x1))", kPositive, "x1 * sqrt(x0)"},
    {"1 - exp(-x0)", kAny, "1 - exp(-x0)"},
    {"10^x0 * x1", kAny, "x1 * 10^x0"},
    // Sums
    {"x0 * (12.1 * (0.684 * x1 + sin(x0) + cos(x1))) / x2 + 670", kPositive,
     "12.1 * x0 * (0.684 * x1 + sin(x0) + cos(x1)) / x2 + 670"},
    {"x0*x1 + x0*x2", kAny, "x0 * (x1 + x2)"},
    {"x0 * (1 + x1/x0)", kPositive, "x0 + x1"},
    {"(x0 + x1) * (x0 - x1) + square(x1)", kAny, "square(x0)"},
    {"9e12 + x0 * (x0 - 6e6)", kAny, "square(x0 - 3e+06)"},
    {"3.5*x0^2 + 7*x0 + 3.5", kAny, "3.5 * square(x0 + 1)"},
    {"5 + (x0 - (5 - x1))", kAny, "x0 + x1"},
    {"x0*x1 + x1*x2 + 3", kAny, "x1 * (x0 + x2) + 3"},
    // Arcs
    {"exp(x1 * log(x0))", kPositive, "x0^x1"},
    {"3 * exp(-2 * x1 * log(x0 + 1))", kPositive, "3 * (x0 + 1)^(-2 * x1)"},
    {"sqrt(cube(x0))", kPositive, "x0^1.5"},
    {"cos(x0 + 0.570796326794897)", kAny, "sin(1 - x0)"},
    {"2 * sin(x0 + 1.5707963267948966)", kAny, "2 * cos(x0)"},
    {"x1 + sin(x0 + 2.141592653589793)", kAny, "x1 + sin(1 - x0)"},
    {"cos(x0 + 3.71238898038469)", kAny, "sin(x0 - 1)"},
    {"cos(1.5707963267948966 + asin(x0))", kUnit, "-x0"},
    {"0.4 / sqrt(exp(square(x0)))", kAny, "0.4 * exp(-0.5 * square(x0))"},
    {"cube(exp(x0))", kAny, "exp(3 * x0)"},
    {"0.5 - 0.5*cos(2*x0*x1)", kAny, "square(sin(x0 * x1))"},
    {"3 + x1 + 3*cos(1.6*x0)", kAny, "x1 + 6 * square(cos(0.8 * x0))"},
    {"4*cos(x1/5) - 4", kAny, "-8 * square(sin(0.1 * x1))"},
    {"x0*(cos(x1*x2) - 1)/(cos(x1) - 1)", kAny, "x0 * (cos(x1 * x2) - 1) / (cos(x1) - 1)"},
    {"(x0*(square(x0 + 1.5) + 0.75) + 1)/(square(x0 - 0.5) + 0.75)", kAny, "cube(x0 + 1) / (square(x0 - 0.5) + 0.75)"},
    {"5 - 2*cube(x0) + 12*square(x0) - 24*x0", kAny, "-11 - 2 * cube(x0 - 2)"},
    {"asin(x0)", kUnit, "asin(x0)"},
    {"asin(sin(x0))", kUnit, "x0"},
    {"asin(sin(x0))", kPositive, "asin(sin(x0))"},
    {"asin(x0*x1*x2/x3)", kPositive, "asin(x0 * x1 * x2 / x3)"},
    {"sin(asin(x0 / 2))", kUnit, "0.5 * x0"},
};

TEST(Shorten, FormsAreThoseThatPeopleWrite) {
  for (const auto& c : kForms) EXPECT_EQ(shortest(c.text, c.range), c.expected) << c.text;
  EXPECT_GE(std::size(kForms), 40u);
}

TEST(Shorten, ProposesNumbersInsideAndOutsideOfSums) {
  const std::vector<Interval> ranges(2, kPositive);
  std::vector<std::string> texts;
  for (const Expression& form : shorten(infix("1.05 * (sin(x0) + 0.95 * x1)"), ranges, Writing::withAll())) {
    texts.push_back(textOf(form));
  }
  EXPECT_THAT(texts, testing::Contains("0.9975 * x1 + 1.05 * sin(x0)"));
  EXPECT_THAT(texts, testing::Contains(testing::HasSubstr("* (x1 + ")));
}

TEST(Shorten, WritesWithTheOperatorsThatThereAre) {
  Writing writing = Writing::withAll();
  writing.operators.reset();
  for (const Op op : {Op::kAdd, Op::kMul, Op::kDiv, Op::kExp, Op::kLog}) {
    writing.operators.set(static_cast<std::size_t>(op));
  }
  EXPECT_EQ(shortest("exp(1.37 * log(x0))", kPositive, writing), "exp(1.37 * log(x0))") << "no power";
  EXPECT_EQ(shortest("x0 * x0 * (x1 * x1)", kPositive, writing), "x0 * x0 * (x1 * x1)") << "no square";
  EXPECT_EQ(shortest("1 / x0 / x1", kPositive, writing), "1 / (x0 * x1)") << "no inv";
  EXPECT_EQ(shortest("x0 + -1 * x1", kPositive, writing), "x0 + -1 * x1") << "no difference";
  writing = Writing::withAll();
  writing.costs[static_cast<std::size_t>(Op::kSquare)] = 9;
  EXPECT_EQ(shortest("x0 * x0 + x1", kPositive, writing), "x1 + x0^2") << "a square is dear";
}

TEST(Shorten, WhatItCannotReadStays) {
  for (const char* text : {"p0 * x0 + 0", "x0 / 0 + 0", "1e300 * 1e300 * x0"}) {
    EXPECT_EQ(shorten(infix(text), {}, Writing::withAll()), std::vector{infix(text)}) << text;
  }
  const Expression chain = chainOf(200, [](std::uint32_t i) { return i % 2; }, [](std::uint32_t) { return Op::kAdd; });
  EXPECT_EQ(shorten(chain, {}, Writing::withAll()), std::vector{chain});
}

constexpr Op kOperators[] = {Op::kAdd,    Op::kSub,  Op::kMul,  Op::kDiv,  Op::kNeg, Op::kInv,
                             Op::kSquare, Op::kCube, Op::kSqrt, Op::kExp,  Op::kLog, Op::kAbs,
                             Op::kSin,    Op::kCos,  Op::kTanh, Op::kAsin, Op::kPow};

/// The value of an expression in f64; NaN if that of an operator is 0 or not finite.
double finiteValueOf(const Expression& expression, std::span<const double> row) {
  std::vector<double> stack;
  for (const Token& token : expression.tokens()) {
    double value = token.kind == Token::Kind::kConstant ? token.value : 0;
    if (token.kind == Token::Kind::kVariable) value = row[token.index];
    if (token.kind == Token::Kind::kOp) {
      const auto arity = static_cast<std::size_t>(token.arity());
      double operands[3] = {};
      std::copy(stack.end() - token.arity(), stack.end(), operands);
      stack.resize(stack.size() - arity);
      value = applyRow<double>(token.op, operands[0], operands[1], operands[2]);
      if (value == 0) return NAN;
    }
    if (!std::isfinite(value)) return NAN;
    stack.push_back(value);
  }
  return stack.back();
}

/// Of a form: exp(2 * u) is one longer than square(exp(u)).
std::size_t mostTokens(const Expression& before) {
  std::size_t most = before.size();
  for (std::size_t t = 1; t < before.size(); ++t) {
    const Op op = before.tokens()[t].op;
    const bool is_power = op == Op::kSquare || op == Op::kCube || op == Op::kSqrt;
    most +=
        before.tokens()[t - 1] == Token::operation(Op::kExp) && before.tokens()[t] == Token::operation(op) && is_power;
  }
  return most;
}

TEST(Shorten, EveryFormHasTheValueAndCostsNoMore) {
  GeneratorOptions options{.seed = 31,
                           .min_nodes = 1,
                           .max_nodes = 30,
                           .variables = 3,
                           .ops = {std::begin(kOperators), std::end(kOperators)},
                           .constant_probability = 0.35};
  for (int i = 0; i < 4; ++i) options.ops.insert(options.ops.end(), {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv});
  ExpressionGenerator expressions(options);
  Random random(32);
  std::size_t shorter = 0, compared = 0;
  for (int i = 0; i < 2'000; ++i) {
    const Expression before = expressions.next();
    std::vector<Interval> ranges;
    for (int v = 0; v < 3; ++v) {
      const Interval choice[] = {kPositive, kAny, kUnit, kNegative};
      ranges.push_back(choice[random.below(4)]);
    }
    Writing writing = Writing::withAll();
    writing.operators.reset();
    for (const Op op : kOperators) writing.operators.set(static_cast<std::size_t>(op), random.chance(0.7));
    const std::vector<Expression> forms = shorten(before, ranges, writing);
    ASSERT_LE(forms.size(), kMostForms);
    shorter += forms.front().size() < before.size();
    for (const Token& token : before.tokens()) {
      if (token.kind == Token::Kind::kOp) writing.operators.set(static_cast<std::size_t>(token.op));
    }
    const std::size_t most = mostTokens(before);
    for (const Expression& form : forms) {
      ASSERT_LE(form.size(), most) << textOf(before) << " became " << textOf(form);
      for (const Token& token : form.tokens()) {
        ASSERT_TRUE(token.kind != Token::Kind::kOp || writing.operators[static_cast<std::size_t>(token.op)])
            << textOf(before) << " became " << textOf(form);
      }
    }
    for (int k = 0; k < 6; ++k) {
      std::vector<double> row;
      for (const Interval& range : ranges) row.push_back(random.between(range.low, range.high));
      if (!std::isfinite(finiteValueOf(before, row))) continue;
      const Bounded expected = evaluateBounded(before, row, {}, {});
      for (const Expression& form : forms) {
        const Bounded value = evaluateBounded(form, row, {}, {});
        // Numbers that were computed are rounded, too.
        const double bound = 1e4 * (expected.error + value.error) + 1e-12 * std::fabs(expected.value);
        if (!(bound <= 1e-3 * std::fabs(expected.value))) continue;
        ++compared;
        ASSERT_LE(std::fabs(value.value - expected.value), bound)
            << fmt::format("{} became {}, at {} {} {}: {} and {}", textOf(before), textOf(form), row[0], row[1], row[2],
                           expected.value, value.value);
      }
    }
  }
  EXPECT_GT(shorter, 1'000u);
  EXPECT_GT(compared, 6'000u);
}

}  // namespace
}  // namespace srjit
