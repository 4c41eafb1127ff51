#include "tools/search/formulas/uncertainty.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "tests/tools/search/small_runs.h"

namespace srjit::search {
namespace {

const Engine& strictEngine() {
  static const Engine engine =
      Engine::create({.device = "cpu", .precision = Precision::kF64, .math = Math::kStrict}).value();
  return engine;
}

Expression formulaOf(std::string_view text) { return parse(text, Language::kInfix).value(); }

double normal(Random& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.unit()));
  return radius * std::cos(2 * std::numbers::pi * random.unit());
}

// The textbook's formulas of a weighted straight line.
TEST(Uncertainty, OfALineIsThatOfRegression) {
  Random random(1);
  for (const double scale : {1.0, 1e-190, 1e150}) {
    RowSet set;
    set.columns = {{}};
    double weights = 0, mean = 0, squares = 0, residuals = 0;
    for (int r = 0; r < 40; ++r) {
      set.columns[0].push_back(random.between(-1.0, 5.0));
      set.target.push_back(scale * (2 - 3 * set.columns[0].back() + normal(random)));
      set.weights.push_back(r % 9 == 0 ? 0 : random.between(0.5, 4.0));
    }
    const double n = 35;
    for (int r = 0; r < 40; ++r) weights += set.weights[r] / n;
    const auto sum = [&](auto term) {
      double all = 0;
      for (int r = 0; r < 40; ++r) all += set.weights[r] / weights * term(set.columns[0][r], set.target[r] / scale);
      return all;
    };
    mean = sum([](double x, double) { return x; }) / n;
    squares = sum([&](double x, double) { return (x - mean) * (x - mean); });
    residuals = sum([](double x, double y) { return (y - 2 + 3 * x) * (y - 2 + 3 * x); });
    const double s = std::sqrt(residuals / (n - 2));
    const Expression line = formulaOf(fmt::format("{} + x0*{}", 2 * scale, -3 * scale));
    const Uncertainty of = uncertaintyOf(strictEngine(), line, set.view());
    EXPECT_EQ(of.freedom, 33U);
    EXPECT_NEAR(of.residual / scale, s, 1e-10);
    ASSERT_EQ(of.standard_errors.size(), 2U);
    EXPECT_NEAR(of.standard_errors[0] / scale, s * std::sqrt(1 / n + mean * mean / squares), 1e-10);
    EXPECT_NEAR(of.standard_errors[1] / scale, s / std::sqrt(squares), 1e-10);
    const std::vector<double> at{-7, mean, 100};
    const std::vector<double> widths = halfWidths(strictEngine(), line, of, {.columns = {ColumnView(at)}}, 0.9);
    for (std::size_t i = 0; i < at.size(); ++i) {
      const double distance = at[i] - mean;
      const double expected = 1.6923603 * s * std::sqrt(1 + 1 / n + distance * distance / squares);
      EXPECT_NEAR(widths[i] / scale, expected, 1e-7 * expected);
    }
  }
}

TEST(Uncertainty, KnownAndReplaceableConstantsHaveNoError) {
  const RowSet set = rowsOf(1, 100, [](const auto& row) { return 6 * row[0] * row[0] + 1; }, 0.1);
  const Uncertainty of = uncertaintyOf(strictEngine(), formulaOf("2*3*x0^2 + 1"), set.view());
  ASSERT_EQ(of.standard_errors.size(), 4U);
  EXPECT_GT(of.standard_errors[0], 0);
  EXPECT_TRUE(std::isnan(of.standard_errors[1]) && std::isnan(of.standard_errors[2]));
  EXPECT_GT(of.standard_errors[3], 0);
  EXPECT_EQ(of.freedom, 98U);
  const RowSet few = rowsOf(1, 2, [](const auto& row) { return row[0]; });
  EXPECT_TRUE(std::isnan(uncertaintyOf(strictEngine(), formulaOf("1.5*x0 + 2"), few.view()).residual));
}

// Three blocks of rows.
TEST(Uncertainty, OfManyRowsIsThatOfAll) {
  const RowSet set = rowsOf(1, 140'000, [](const auto& row) { return 3 * row[0]; }, 0.5);
  const Uncertainty of = uncertaintyOf(strictEngine(), formulaOf("3.0000001*x0"), set.view());
  EXPECT_NEAR(of.residual, 0.5 / std::sqrt(3), 0.002);
  const std::vector<double> widths = halfWidths(strictEngine(), formulaOf("3.0000001*x0"), of, set.view(), 0.95);
  ASSERT_EQ(widths.size(), set.size());
  for (const double width : widths) EXPECT_NEAR(width, 1.96 * of.residual, 0.001);
}

// Of 95 % intervals, 95 of 100 contain a new measurement, for a formula that is not linear and few rows.
TEST(Uncertainty, IntervalsContainNewMeasurements) {
  Random random(5);
  const auto law = [](double x) { return 2.5 * std::exp(-0.8 * x) + 0.4; };
  const Program program = strictEngine().compile(std::vector{formulaOf("p0*exp(p1*x0) + p2")});
  std::size_t within = 0, all = 0;
  for (int run = 0; run < 400; ++run) {
    RowSet set, fresh;
    for (RowSet* const rows : {&set, &fresh}) rows->columns = {{}};
    for (RowSet* const rows : {&set, &fresh}) {
      for (int r = 0; r < 15; ++r) {
        rows->columns[0].push_back(random.between(0.0, 4.0));
        rows->target.push_back(law(rows->columns[0].back()) + 0.1 * normal(random));
      }
    }
    const Fits fits =
        strictEngine().fit(program, strictEngine().upload(set.view()).value(), std::vector{2.0, -1.0, 0.5}).value();
    const auto& p = fits.parameters;
    const Expression formula = formulaOf(fmt::format("{}*exp({}*x0) + {}", p[0], p[1], p[2]));
    const Uncertainty of = uncertaintyOf(strictEngine(), formula, set.view());
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(of.standard_errors[i], fits.standard_errors[i], 1e-3 * fits.standard_errors[i]) << run;
    }
    const std::vector<double> widths = halfWidths(strictEngine(), formula, of, fresh.view(), 0.95);
    for (std::size_t r = 0; r < fresh.size(); ++r) {
      const double prediction = p[0] * std::exp(p[1] * fresh.columns[0][r]) + p[2];
      within += std::fabs(prediction - fresh.target[r]) <= widths[r] ? 1 : 0;
      ++all;
    }
  }
  const double share = static_cast<double>(within) / static_cast<double>(all);
  EXPECT_GT(share, 0.93);
  EXPECT_LT(share, 0.97);
}

// The numbers are those of scipy.stats.t.ppf.
TEST(Uncertainty, QuantilesAreThoseOfStudent) {
  struct Row {
    std::size_t freedom;
    double half, most, nearly_all;
  };
  for (const auto& [freedom, half, most, nearly_all] :
       {Row{1, 1.0000000000000002, 12.706204736174694, 63.656741162871526},
        Row{2, 0.8164965809277261, 4.302652729749462, 9.924843200918287},
        Row{3, 0.7648923284043444, 3.1824463052837078, 5.840909309733355},
        Row{4, 0.7406970841126829, 2.7764451051977934, 4.604094871349992},
        Row{7, 0.7111417780817866, 2.364624251592784, 3.4994832973504924},
        Row{30, 0.6827556933212927, 2.0422724563012378, 2.7499956535672254},
        Row{1001, 0.6747349193584472, 1.9623367052808798, 2.5807497687505245},
        Row{100000, 0.674492203553292, 1.9599877075346095, 2.575878469908375},
        Row{10000000, 0.6744897747295749, 1.959964221767205, 2.5758297952037488}}) {
    const double places = 1e-10;
    EXPECT_NEAR(studentQuantile(0.5, freedom) / half, 1, places) << freedom;
    EXPECT_NEAR(studentQuantile(0.95, freedom) / most, 1, places) << freedom;
    EXPECT_NEAR(studentQuantile(0.99, freedom) / nearly_all, 1, places) << freedom;
  }
  EXPECT_TRUE(std::isnan(studentQuantile(0.95, 0)));
}

TEST(Importances, AreSharesOfTheChange) {
  for (const double scale : {1.0, 1e-180}) {
    const RowSet set = rowsOf(4, 20'000, [](const auto& row) { return row[0]; });
    const Expression formula = formulaOf(fmt::format("{}*(3*x0 - x2)", scale));
    const std::vector<double> shares = importancesOf(strictEngine(), formula, set.view());
    ASSERT_EQ(shares.size(), 4U);
    EXPECT_NEAR(shares[0], 0.9, 0.01);
    EXPECT_NEAR(shares[2], 0.1, 0.01);
    EXPECT_EQ(shares[1] + shares[3], 0);
    EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12);
    EXPECT_EQ(importancesOf(strictEngine(), formula, set.view()), shares);
    EXPECT_EQ(importancesOf(strictEngine(), formulaOf("2.5"), set.view()), std::vector<double>(4));
  }
  // Shuffled, a - b is negative in half of the rows.
  RowSet pairs;
  pairs.columns = {{}, {}};
  for (int r = 0; r < 50; ++r) {
    pairs.columns[0].push_back(r + 1);
    pairs.columns[1].push_back(r);
    pairs.target.push_back(r);
  }
  const std::vector<double> shares = importancesOf(strictEngine(), formulaOf("log(x0 - x1) + x0"), pairs.view());
  EXPECT_TRUE(shares[0] > 0 && shares[1] > 0);
}

}  // namespace
}  // namespace srjit::search
