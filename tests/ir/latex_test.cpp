#include "ir/text/latex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "ir/ops.h"

namespace srjit::text {
namespace {

using testing::HasSubstr;

std::string latexOf(std::string_view infix, const ColumnNames& columns = {"x", "y", "z"}) {
  const Result<Expression> expression = parse(infix, Language::kInfix, columns);
  return expression ? latexText(*expression, columns) : "error: " + expression.error().message;
}

std::size_t countOf(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

/// Braces that are no escapes, and other pairs.
void expectBalanced(const std::string& text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '{' || text[i] == '}') {
      depth += text[i] == '{' ? 1 : -1;
      ASSERT_GE(depth, 0) << text;
    }
  }
  EXPECT_EQ(depth, 0) << text;
  EXPECT_EQ(countOf(text, "\\left"), countOf(text, "\\right")) << text;
  EXPECT_EQ(countOf(text, "\\begin"), countOf(text, "\\end")) << text;
}

TEST(Latex, EveryOperatorHasAForm) {
  const ColumnNames columns{"u", "v", "w"};
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    std::vector<Token> tokens;
    for (std::uint32_t j = 0; j < static_cast<std::uint32_t>(arityOf(op)); ++j) tokens.push_back(Token::variable(j));
    tokens.push_back(Token::operation(op));
    const std::string alone = latexText(*Expression::create(tokens), columns);
    expectBalanced(alone);
    EXPECT_EQ(alone.find('@'), std::string::npos) << alone;
    EXPECT_EQ(alone.find('*'), std::string::npos) << alone;
    for (int j = 0; j < arityOf(op); ++j) {
      EXPECT_TRUE(alone.find(columns[static_cast<std::size_t>(j)]) != std::string::npos) << alone;
    }
    // With each operand a difference, and as the operand of each operator.
    for (std::size_t k = 0; k < kOpCount; ++k) {
      std::vector<Token> nested;
      for (int j = 0; j < arityOf(static_cast<Op>(k)); ++j) nested.insert(nested.end(), tokens.begin(), tokens.end());
      nested.push_back(Token::operation(static_cast<Op>(k)));
      expectBalanced(latexText(*Expression::create(nested), columns));
    }
  }
}

TEST(Latex, PowersRootsAndQuotients) {
  EXPECT_EQ(latexOf("x / y"), "\\frac{x}{y}");
  EXPECT_EQ(latexOf("inv(x + 1)"), "\\frac{1}{x + 1}");
  EXPECT_EQ(latexOf("square(x) + cube(y)"), "x^{2} + y^{3}");
  EXPECT_EQ(latexOf("square(x + y)"), "\\left(x + y\\right)^{2}");
  EXPECT_EQ(latexOf("x^(y + 1)"), "x^{y + 1}");
  EXPECT_EQ(latexOf("(x^y)^z"), "\\left(x^{y}\\right)^{z}");
  EXPECT_EQ(latexOf("x^y^z"), "x^{y^{z}}");
  EXPECT_EQ(latexOf("(x / y)^2"), "\\left(\\frac{x}{y}\\right)^{2}");
  EXPECT_EQ(latexOf("(-2)^x"), "\\left(-2\\right)^{x}");
  EXPECT_EQ(latexOf("sqrt(x) * cbrt(y)"), "\\sqrt{x} \\, \\sqrt[3]{y}");
  EXPECT_EQ(latexOf("aq(x, y)"), "\\frac{x}{\\sqrt{1 + y^{2}}}");
}

TEST(Latex, Functions) {
  EXPECT_EQ(latexOf("sin(x + y)"), "\\sin\\left(x + y\\right)");
  EXPECT_EQ(latexOf("square(sin(x))"), "\\sin^{2}\\left(x\\right)");
  EXPECT_EQ(latexOf("cube(loose_log(x))"), "\\operatorname{loose\\_log}^{3}\\left(x\\right)");
  EXPECT_EQ(latexOf("square(exp(x))"), "\\left(\\exp\\left(x\\right)\\right)^{2}");
  EXPECT_EQ(latexOf("sin(x)^2"), "\\left(\\sin\\left(x\\right)\\right)^{2}");
  EXPECT_EQ(latexOf("exp2(x) + log2(y)"), "2^{x} + \\log_{2}\\left(y\\right)");
  EXPECT_EQ(latexOf("abs(-x)"), "\\left|-x\\right|");
  EXPECT_EQ(latexOf("max(x, floor(y))"), "\\max\\left(x, \\left\\lfloor y \\right\\rfloor\\right)");
  EXPECT_EQ(latexOf("pdiv(x, y)"), "\\operatorname{pdiv}\\left(x, y\\right)");
  EXPECT_EQ(latexOf("psqrt(x)"), "\\sqrt{\\left|x\\right|}");
  EXPECT_EQ(latexOf("mod(x, y) + 1"), "\\left(x \\bmod y\\right) + 1");
  EXPECT_EQ(latexOf("log1p(-x)"), "\\log\\left(1 - x\\right)");
}

TEST(Latex, ChoicesAndComparisons) {
  EXPECT_EQ(latexOf("lt(x, y)"), "\\left[x < y\\right]");
  EXPECT_EQ(latexOf("ge(x, y) * 2"), "2 \\, \\left[x \\ge y\\right]");
  EXPECT_EQ(latexOf("if(x, y, z)"), "\\begin{cases} y & \\text{if } x > 0 \\\\ z & \\text{otherwise} \\end{cases}");
  EXPECT_EQ(latexOf("if(le(x, 1), y, z)"),
            "\\begin{cases} y & \\text{if } x \\le 1 \\\\ z & \\text{otherwise} \\end{cases}");
  EXPECT_THAT(latexOf("1 + if(x, y, z)"), HasSubstr("1 + \\left(\\begin{cases}"));
}

TEST(Latex, Products) {
  EXPECT_EQ(latexOf("2 * x"), "2 \\, x");
  EXPECT_EQ(latexOf("x * 2"), "2 \\, x");
  EXPECT_EQ(latexOf("x * y * 1.98 * z"), "1.98 \\, x \\, y \\, z");
  EXPECT_EQ(latexOf("x * pi"), "\\pi \\, x");
  EXPECT_EQ(latexOf("2 * 3"), "2 \\cdot 3");
  EXPECT_EQ(latexOf("(x + y) * -2"), "-2 \\, \\left(x + y\\right)");
  EXPECT_EQ(latexOf("x * 2^y"), "x \\cdot 2^{y}");
  EXPECT_EQ(latexOf("x * (2 + y)"), "x \\, \\left(2 + y\\right)");
  EXPECT_EQ(latexOf("x * (y * z)"), "x \\, y \\, z");
  EXPECT_EQ(latexOf("x * -2"), "-2 \\, x");
  EXPECT_EQ(latexOf("x * -y"), "x \\, \\left(-y\\right)");
  EXPECT_EQ(latexOf("-2 * x"), "-2 \\, x");
}

// A sum has no two signs side by side.
TEST(Latex, SignsInSums) {
  EXPECT_EQ(latexOf("x - (y - z)"), "x - \\left(y - z\\right)");
  EXPECT_EQ(latexOf("x + -2"), "x - 2");
  EXPECT_EQ(latexOf("x - -2 * y"), "x + 2 \\, y");
  EXPECT_EQ(latexOf("x + -y"), "x - y");
  EXPECT_EQ(latexOf("x - -(-2)"), "x - 2");
  EXPECT_EQ(latexOf("-(-x)"), "-\\left(-x\\right)");
  EXPECT_EQ(latexOf("-(x + y)"), "-\\left(x + y\\right)");
  EXPECT_EQ(latexOf("x + (-y + z)"), "x + \\left(-y + z\\right)");
  EXPECT_EQ(latexOf("fma(x, -2, -y)"), "-2 \\, x - y");
  EXPECT_EQ(latexOf("fnma(-2, x, y)"), "y + 2 \\, x");
  EXPECT_EQ(latexOf("lt(x, -2)"), "\\left[x < -2\\right]");
}

TEST(Latex, Numbers) {
  EXPECT_EQ(latexOf("0.1"), "0.1");
  EXPECT_EQ(latexOf("1.2e-05 * x"), "1.2 \\cdot 10^{-5} \\, x");
  EXPECT_EQ(latexOf("x + -1e+20"), "x - 10^{20}");
  EXPECT_EQ(latexOf("square(1.5e-7)"), "\\left(1.5 \\cdot 10^{-7}\\right)^{2}");
  EXPECT_EQ(latexOf("1e-300^x"), "\\left(10^{-300}\\right)^{x}");
  EXPECT_EQ(latexOf("pi * x - pi"), "\\pi \\, x - \\pi");
  EXPECT_EQ(latexOf("inf - nan"), "\\infty - \\mathrm{NaN}");
  EXPECT_EQ(latexNumber("-1e-05"), "-10^{-5}");
}

TEST(Latex, Names) {
  EXPECT_EQ(latexName("m"), "m");
  EXPECT_EQ(latexName("mass"), "\\mathrm{mass}");
  EXPECT_EQ(latexName("net_mass"), "\\mathrm{net\\_mass}");
  EXPECT_EQ(latexName("x1"), "x_{1}");
  EXPECT_EQ(latexName("x_12"), "x_{12}");
  EXPECT_EQ(latexName("mass2"), "\\mathrm{mass}_{2}");
  EXPECT_EQ(latexName("theta"), "\\theta");
  EXPECT_EQ(latexName("Omega_0"), "\\Omega_{0}");
  EXPECT_EQ(latexName("pi"), "\\mathrm{pi}");
  EXPECT_EQ(latexName("_"), "\\mathrm{\\_}");
  EXPECT_EQ(latexName("_1"), "\\mathrm{\\_1}");
  EXPECT_EQ(latexName("net weight (%)"), "\\text{net weight (\\%)}");
  const std::string special = latexName("a_%&#${}~^\\<>|\"\n");
  expectBalanced(special);
  EXPECT_EQ(special,
            "\\text{a\\_\\%\\&\\#\\$\\{\\}\\textasciitilde{}\\textasciicircum{}\\textbackslash{}\\textless{}"
            "\\textgreater{}\\textbar{}\\textquotedblright{}\\textbackslash{}x0a}");
}

TEST(Latex, ColumnsWithoutNamesOrWithOneTwice) {
  EXPECT_EQ(latexOf("x0 + x12 * p3", {}), "x_{0} + x_{12} \\, p_{3}");
  EXPECT_EQ(latexOf("a + x[1]", {"a", "a"}), "a + x_{1}");
}

TEST(Latex, DifferentColumnsLookDifferent) {
  using testing::ElementsAre;
  EXPECT_THAT(latexNames({"x1", "x_1", "x2", "mass2"}, 0),
              ElementsAre("\\mathrm{x1}", "\\mathrm{x\\_1}", "x_{2}", "\\mathrm{mass}_{2}"));
  EXPECT_THAT(latexNames({"x_1", ""}, 3), ElementsAre("\\mathrm{x\\_1}", "x_{1}", "x_{2}"));
  EXPECT_EQ(latexOf("x1 - x_1", {"x1", "x_1"}), "\\mathrm{x1} - \\mathrm{x\\_1}");
}

TEST(Latex, DeepFormulasTakeLinearTime) {
  std::vector<Token> tokens{Token::variable(0)};
  for (int i = 0; i < 200'000; ++i) {
    tokens.push_back(Token::operation(i % 2 == 0 ? Op::kSin : Op::kNeg));
    tokens.push_back(Token::constant(-1.5));
    tokens.push_back(Token::operation(Op::kMul));
  }
  const std::string text = latexText(*Expression::create(tokens), {});
  EXPECT_GT(text.size(), 2'000'000u);
  EXPECT_LT(text.size(), 20'000'000u);
}

}  // namespace
}  // namespace srjit::text
