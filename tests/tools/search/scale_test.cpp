// Laws are found whatever the scale of their columns and of their target.
#include "tools/search/evolution.h"
#include "tools/search/formulas/scaling.h"
#include "tools/search/formulas/units.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "ir/numbers/random.h"
#include "ir/reference.h"
#include "ir/text.h"
#include "tests/tools/search/small_runs.h"

namespace srjit::search {
namespace {

/// A law, and its columns that may have any scale, or '+' if all must have the same.
struct ScaledLaw {
  std::size_t columns;
  const char* text;
  const char* free;
};

constexpr ScaledLaw kLaws[] = {
    {2, "x0 * x1", "01"},         {2, "x0 / x1", "01"},
    {2, "x0 * x1^2", "01"},       {2, "sqrt(x0 / x1)", "01"},
    {2, "x0 * exp(-x1)", "0"},    {2, "x0 + x1", "+"},
    {2, "3 * x0 - x1", "+"},      {3, "x0 * x1 / x2", "012"},
    {3, "6.5*x0*x1/x2^2", "012"}, {1, "x0^1.5", "0"},
    {1, "1 / x0^2", "0"},         {2, "x0 * log(x1)", "0"},
    {2, "x0 * sin(x1)", "0"},     {2, "x0 * x1 / (x0 + x1)", "+"},
    {2, "x0^2 * sqrt(x1)", "01"}, {2, "0.5 * x0 * x1^2", "01"},
    {3, "x0 * (x1 + x2)", "0"},   {3, "x0 * x1 + x2", "2"},
    {2, "x0 / (x1 + 1)", "0"},    {2, "x0 / (x0 + x1)", "+"},
};

constexpr double kPowers[] = {-150, -6, 6, 150};

RowSet unscaledRows(const ScaledLaw& law) {
  const Expression expression = parse(law.text, Language::kInfix).value();
  return rowsOf(law.columns, 200, [&](const auto& row) { return evaluateReference(expression, row, {}); });
}

/// The chosen formula, or why there is none, after a message if it is not exact.
std::string foundIn(const RowSet& rows) {
  SearchOptions options = smallOptions();
  options.engine.threads = 1;
  options.islands = 8;
  const Result<SearchResult> result = search(rows.view(), options);
  if (!result) return "error: " + result.error().message;
  const Formula& chosen = *result->state.front.chosen();
  const std::string text = print(chosen.expression, Language::kInfix);
  return chosen.loss < 1e-16 ? "found: " + text : fmt::format("loss {}: {}", chosen.loss, text);
}

void multiply(std::vector<double>& values, double by) {
  for (double& value : values) value *= by;
}

/// A law's rows with one change of scale: the target, columns, or an offset of the target.
struct Rescaled {
  std::string name;
  RowSet rows;
};

std::vector<Rescaled> rescalingsOf(const ScaledLaw& law) {
  const RowSet rows = unscaledRows(law);
  std::vector<Rescaled> all;
  for (const double power : kPowers) {
    const double scale = std::pow(10.0, power);
    all.push_back({fmt::format("target 1e{}", power), rows});
    multiply(all.back().rows.target, scale);
    for (const char column : std::string(law.free)) {
      all.push_back({fmt::format("column {} 1e{}", column, power), rows});
      std::vector<std::vector<double>>& columns = all.back().rows.columns;
      if (column == '+') {
        for (std::vector<double>& one : columns) multiply(one, scale);
      } else {
        multiply(columns[static_cast<std::size_t>(column - '0')], scale);
      }
    }
  }
  const auto [least, most] = std::ranges::minmax(rows.target);
  all.push_back({"offset", rows});
  for (double& value : all.back().rows.target) value += 1e6 * (most - least);
  return all;
}

TEST(SearchScale, FourLawsOfAnyScaleAreFound) {
  Random random(49);
  for (const ScaledLaw& law : std::span(kLaws).first(4)) {
    const std::vector<Rescaled> all = rescalingsOf(law);
    const Rescaled& one = all[random.below(all.size())];
    EXPECT_THAT(foundIn(one.rows), testing::StartsWith("found")) << law.text << ", " << one.name;
  }
}

TEST(SearchScaleSlow, EveryLawIsFoundAtEveryScale) {
  for (const ScaledLaw& law : kLaws) {
    for (const Rescaled& one : rescalingsOf(law)) {
      EXPECT_THAT(foundIn(one.rows), testing::StartsWith("found")) << law.text << ", " << one.name;
    }
  }
}

TEST(SearchScale, FactorsOfUnitsGoIntoOneConstant) {
  RowSet rows;
  rows.columns = {{0x1p40, -0x1p40}, {0x1p-60, -0x1p-60}, {1, 2}};
  rows.target = {1, 2};
  const Units units = Units::of(rows);
  EXPECT_TRUE(units.areNeeded());
  EXPECT_THAT(units.divide(rows.columns)[1], testing::ElementsAre(1, -1));
  const auto folded = [&](const char* text, bool is_scaled) {
    const Expression tree = parse(text, Language::kInfix).value();
    return print(Expression::create(units.folded(tree.tokens(), is_scaled).value()).value(), Language::kInfix);
  };
  EXPECT_EQ(folded("x0 * sqrt(x1) / x2", true), "x0 * sqrt(x1) / x2");
  EXPECT_EQ(folded("x2 + 3 * square(x0)", true), "x2 + 2.481541837659083e-24 * square(x0)");
  EXPECT_EQ(folded("exp(x0 * x1)", false), "exp(x0 * x1 * 1048576)");
  EXPECT_EQ(folded("exp(2 * x0 * x1)", false), "exp(2097152 * x0 * x1)");
  EXPECT_EQ(folded("square(x0 + 1)", true), "square(x0 + 1099511627776)");
  EXPECT_EQ(folded("x2 / (x0 - x1)", true), "x2 / (x0 - x1 * 1.2676506002282294e+30)");
  EXPECT_EQ(folded("abs(x0)^3", false), "abs(x0)^3 * 7.52316384526264e-37");
}

TEST(SearchScale, FoldedAndSpelledTreesAreEqual) {
  RowSet rows;
  rows.columns = {{0x1p40, -0x1p40}, {0x1p-60, -0x1p-60}, {1, 2}};
  rows.target = {1, 2};
  const Units units = Units::of(rows);
  const std::vector<double> row = {0x1.2p41, 0x1.7p-60, 2.5}, in_units = {0x1.2p1, 0x1.7p0, 2.5};
  for (const char* text :
       {"x0 + x1 * x2 - 3", "log(x0 / (x1 + x2))", "min(x0, x1) * sin(x2)", "cube(x1) / -(x0 / 3) + sqrt(x0 * x0)",
        "exp(-square(x0 - x1) / 2)", "inv(x0) + cbrt(x1)", "sign(x0) + x0^x2", "5 - x0 * (x1 / (2 - x2))"}) {
    const Expression tree = parse(text, Language::kInfix).value();
    const double expected = evaluateReference(tree, in_units, {});
    const auto valueOf = [&](std::vector<Token> tokens) {
      return evaluateReference(Expression::create(std::move(tokens)).value(), row, {});
    };
    EXPECT_NEAR(valueOf(units.folded(tree.tokens(), false).value()) / expected, 1, 1e-12) << text;
    EXPECT_NEAR(valueOf(units.spelled(tree.tokens())) / expected, 1, 1e-12) << text;
  }
}

TEST(SearchScale, F32IsForColumnsThatItTellsApart) {
  EXPECT_TRUE(fitsF32(std::vector<double>{1.1, 2.2, 0, std::nan(""), 40000}));
  EXPECT_TRUE(fitsF32(std::vector<double>{65535, 65536})) << "the numbers are exact";
  EXPECT_TRUE(fitsF32(std::vector<double>{0.1, 0.1}));
  EXPECT_FALSE(fitsF32(std::vector<double>{1e6, 1, 2}));
  EXPECT_FALSE(fitsF32(std::vector<double>{1e-6, 2e-6}));
  EXPECT_FALSE(fitsF32(std::vector<double>{1, 1e-40}));
  EXPECT_FALSE(fitsF32(std::vector<double>{1000.001, 1000.002, 1000.003}));
}

// The product of the columns is beyond the range of f64, so the factors of their units stand beside them.
TEST(SearchScale, FormulasHaveNoProductsBeyondF64) {
  for (const double scale : {1e-300, 1e300}) {
    RowSet rows = rowsOf(2, 200, [](const auto& row) { return row[0] * row[1]; });
    for (std::vector<double>& column : rows.columns) multiply(column, scale);
    EXPECT_THAT(foundIn(rows), testing::StartsWith("found")) << scale;
  }
}

TEST(SearchScale, TargetsOfAnySizeAreTaken) {
  for (const double scale : {1e-310, 1e-100, 1e307}) {
    RowSet rows = rowsOf(2, 200, [](const auto& row) { return row[0] / row[1]; });
    multiply(rows.target, scale);
    EXPECT_THAT(foundIn(rows), testing::StartsWith("found")) << scale;
    const Front front = search(rows.view(), smallOptions()).value().state.front;
    EXPECT_EQ(front.best(), &front.formulas().back());
    EXPECT_EQ(print(front.best()->expression, Language::kInfix).find(" + "), std::string::npos)
        << "no longer form of it: " << print(front.best()->expression, Language::kInfix);
    std::ranges::fill(rows.target, scale);
    EXPECT_EQ(foundIn(rows), fmt::format("found: {}", scale)) << "a constant";
  }
}

TEST(SearchScale, SelectionIsInF64WhereF32DoesNotDo) {
  // The column's variation is below the last place of f32.
  const RowSet rows = rowsOf(2, 200, [](const auto& row) { return row[0] * row[1]; });
  RowSet shifted = rows;
  for (double& value : shifted.columns[0]) value = 1000 + 1e-6 * value;
  for (std::size_t r = 0; r < rows.size(); ++r) shifted.target[r] = (shifted.columns[0][r] - 1000) * rows.columns[1][r];
  SearchOptions options = smallOptions();
  options.selecting_engine = Engine::create(options.engine).value();
  EXPECT_LT(search(shifted.view(), options)->state.front.best()->loss, 1e-9);
}

TEST(SearchScale, StandardisedNumbersKeepTheirValue) {
  for (const double scale : {0x1p-1000, 1.0, 0x1p1000}) {
    RowSet rows;
    rows.target = {3 * scale, 5 * scale, 10 * scale};
    const Standardised all = standardise(rows.target, rows);
    EXPECT_EQ(all.centre, 6 * scale);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(all.centre + std::ldexp(all.deviations[r], all.exponent), rows.target[r]);
    }
    rows.target = {scale / 3, scale / 3, scale / 3};
    EXPECT_THAT(standardise(rows.target, rows).deviations, testing::Each(0));
  }
}

}  // namespace
}  // namespace srjit::search
