#include "tools/search/trees/look_alikes.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "ir/reference.h"
#include "ir/text.h"
#include "tests/tools/search/small_runs.h"

namespace srjit::search {
namespace {

/// x0 / (1 - x0 / 3) at small values, which is nearly x0 exp(x0 / 3).
double polarisation(const std::vector<double>& row) { return row[0] * row[1] / (1 - row[0] * row[1] / 3); }

TEST(LookAlikes, DifferByTheSquareOfTheSmallPart) {
  constexpr double kMostSmall = 1e-3;
  const std::vector<Interval> ranges = {{-kMostSmall, kMostSmall}, {1, 2}};
  Random random(5);
  for (const char* text : {"exp(x0)", "1 + x0", "x1 - x0", "x1 * exp(2 * x0)", "3 * (2 - x0 * x1)"}) {
    const Expression formula = parse(text, Language::kInfix).value();
    const std::vector<Expression> alikes = lookAlikesOf(formula, ranges, Writing::withAll());
    EXPECT_GE(alikes.size(), 9u) << text;
    for (const Expression& alike : alikes) {
      for (int i = 0; i < 20; ++i) {
        const std::vector<double> row = {random.between(-kMostSmall, kMostSmall), random.between(1.0, 2.0)};
        const double value = evaluateReference(formula, row, {}), other = evaluateReference(alike, row, {});
        if (row[0] == 0) continue;
        ASSERT_LE(std::fabs(other / value - 1), 20 * kMostSmall * kMostSmall)
            << text << ", " << print(alike, Language::kInfix);
      }
    }
  }
}

TEST(LookAlikes, OfProductsHaveAnotherOne) {
  const std::vector<Interval> ranges = {{1, 2}, {1, 2}};
  const std::vector<Expression> alikes =
      lookAlikesOf(parse("3 * x0 / x1", Language::kInfix).value(), ranges, Writing::withAll());
  EXPECT_EQ(alikes.size(), 6u) << "three parts, and their squares";
  for (const Expression& alike : alikes) {
    const double value = evaluateReference(alike, std::vector<double>{1.5, 1.25}, {});
    EXPECT_NEAR(value, 3.6, 2e-3) << print(alike, Language::kInfix);
    EXPECT_NE(value, 3.6);
  }
}

TEST(LookAlikes, WhatIsNotSmallHasNone) {
  const std::vector<Interval> ranges = {{-2, 2}, {1, 2}};
  const Expression formula = parse("exp(x0) + 2 * x1", Language::kInfix).value();
  EXPECT_TRUE(lookAlikesOf(formula, ranges, Writing::withAll()).empty());
}

TEST(LookAlikes, ASearchTellsThemApart) {
  const RowSet rows = rowsOf(2, 300, polarisation, 0, 1e-4, 1e-3);
  SearchOptions options = smallOptions();
  options.generations = 10;
  options.grammar.operators = parseOperators("add,sub,mul,div,exp").value();
  const SearchResult result = search(rows.view(), options).value();
  const Formula& chosen = *result.state.front.chosen();
  EXPECT_LT(chosen.loss, 1e-28);
  EXPECT_THAT(print(chosen.expression, Language::kInfix), testing::Not(testing::HasSubstr("exp")));
}

}  // namespace
}  // namespace srjit::search
