// The expressions that the benchmark's scenarios generate.
#include <array>
#include <cmath>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "ir/reference.h"
#include "ir/text.h"
#include "tests/generators/enumeration.h"
#include "tests/generators/klein_nishina.h"

namespace srjit {
namespace {

double meanSize(const std::vector<Expression>& expressions) {
  double tokens = 0;
  for (const Expression& expression : expressions) tokens += static_cast<double>(expression.size());
  return tokens / static_cast<double>(expressions.size());
}

TEST(Enumeration, StartsWithAllSmallTrees) {
  std::vector<std::string> texts;
  for (const Expression& expression : enumerateExpressions(13)) texts.push_back(print(expression, Language::kInfix));
  EXPECT_EQ(texts, (std::vector<std::string>{"x0", "x1", "p0", "abs(x0)", "abs(x1)", "log(x0)", "log(x1)", "exp(x0)",
                                             "exp(x1)", "inv(x0)", "inv(x1)", "sqrt(x0)", "sqrt(x1)"}));
}

TEST(Enumeration, TreesAreDistinctAscendInSizeAndAreAsManyAsRequested) {
  const auto expressions = enumerateExpressions(10000);
  ASSERT_EQ(expressions.size(), 10000U);
  std::set<std::string> texts;
  std::size_t size = 1;
  for (const Expression& expression : expressions) {
    EXPECT_GE(expression.size(), size);
    size = expression.size();
    EXPECT_LE(expression.variableCount(), 2U);
    EXPECT_TRUE(texts.insert(print(expression, Language::kPostfix)).second) << print(expression, Language::kInfix);
  }
}

TEST(Enumeration, OfThePublishedNumberHasThePublishedSize) {
  const auto expressions = enumerateExpressions(250000);
  ASSERT_EQ(expressions.size(), 250000U);
  EXPECT_NEAR(meanSize(expressions), 7.5, 0.15);
}

TEST(Enumeration, OmitsRedundantTrees) {
  for (const Expression& expression : enumerateExpressions(5000)) {
    const std::string text = " " + print(expression, Language::kPostfix) + " ";
    for (const char* const bad : {" log exp ", " exp log ", " inv inv ", " / inv ", " abs abs ", " exp abs ",
                                  " p0 log ", " p0 exp ", " x0 x0 - ", " x1 x1 / ", " p0 - ", " p1 / ", " p0 p1 + "}) {
      EXPECT_EQ(text.find(bad), std::string::npos) << text;
    }
  }
}

TEST(KleinNishina, HasThePublishedSizeAndTheFormulasValue) {
  const Expression formula = kleinNishina();
  EXPECT_EQ(formula.size(), 44U);
  EXPECT_EQ(formula.variableCount(), 7U);
  EXPECT_EQ(formula.parameterCount(), 0U);
  for (const double theta : {0.0, 0.7, 1.9}) {
    const std::array<double, kKleinNishinaVariables> x = {1.1, 2.2, 1.3, 1.7, 2.5, 3.1, theta};
    EXPECT_NEAR(evaluateReference(formula, x, {}) / kleinNishinaValue(x), 1, 1e-12);
  }
  // Forward scattering without energy loss is Thomson scattering: radius squared.
  const double radius = 1.1 * 2.2 / (2 * std::acos(-1.0) * 1.3 * 1.7);
  EXPECT_NEAR(kleinNishinaValue({1.1, 2.2, 1.3, 1.7, 2, 2, 0}), radius * radius, 1e-12);
}

TEST(Generations, AreDeterministicAndStaySimilar) {
  Generations one(300), other(300);
  for (int generation = 0; generation < 20; ++generation) {
    ASSERT_EQ(one.current(), other.current());
    EXPECT_NEAR(meanSize(one.current()), 46, 4);
    for (const Expression& expression : one.current()) {
      EXPECT_GE(expression.size(), 24U);
      EXPECT_LE(expression.size(), 64U);
      EXPECT_LE(expression.variableCount(), kKleinNishinaVariables);
    }
    const auto before = one.current();
    one.next();
    other.next();
    EXPECT_NE(one.current(), before);
  }
}

}  // namespace
}  // namespace srjit
