#include "tools/search/sums.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "ir/reference.h"
#include "ir/text.h"
#include "tests/tools/search/small_runs.h"

namespace srjit::search {
namespace {

using Law = double (*)(const std::vector<double>&);

SearchOptions optionsOf(std::vector<std::string> links, std::string_view operators = "") {
  SearchOptions options = smallOptions();
  options.links = std::move(links);
  if (!operators.empty()) options.grammar.operators = parseOperators(operators).value();
  return options;
}

/// The least share of the variance of g(y) that a + b f leaves, for a tree f.
double restOf(const Expression& tree, const RowSet& rows, const Link& link) {
  double count = 0, f_mean = 0, y_mean = 0, ff = 0, fy = 0, yy = 0;
  std::vector<double> row(rows.columns.size());
  const auto values = [&](const auto& use) {
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::size_t c = 0; c < row.size(); ++c) row[c] = rows.columns[c][r];
      use(evaluateReference(tree, row, {}), link.forward(rows.target[r]));
    }
  };
  values([&](double f, double y) {
    ++count;
    f_mean += f;
    y_mean += y;
  });
  values([&](double f, double y) {
    f -= f_mean / count;
    y -= y_mean / count;
    ff += f * f;
    fy += f * y;
    yy += y * y;
  });
  return 1 - fy * fy / (ff * yy);
}

/// That of the best tree; all of them must be admitted.
double leastRest(const RowSet& rows, const SearchOptions& options, std::span<const Expression> parts = {}) {
  const SearchSetup setup = setUp(rows.view(), options, 0, {});
  double least = std::numeric_limits<double>::infinity();
  for (const Expression& tree : sparseSums(setup, 0, parts)) {
    EXPECT_TRUE(setup.grammars[0].admits(tree.tokens())) << print(tree, Language::kInfix);
    least = std::fmin(least, restOf(tree, rows, *setup.frames[0].link));
  }
  return least;
}

double horner(double x, int degree) {
  double value = 0;
  for (int k = 0; k < degree; ++k) value = (value + 1) * x;
  return value;
}

TEST(SparseSums, HaveLawsThatAreSumsOfTheLibrary) {
  struct Case {
    std::size_t columns;
    Law law;
  };
  const Case cases[] = {
      {1, [](const std::vector<double>& x) { return horner(x[0], 6); }},
      {1, [](const std::vector<double>& x) { return horner(x[0], 9); }},
      {2, [](const std::vector<double>& x) { return 3 - 1.5 * x[0] * x[1] + 0.25 * x[1] * x[1] * x[1]; }},
      {3, [](const std::vector<double>& x) { return x[0] / x[1] + 4 * std::sin(x[2]) - x[1]; }},
      {8, [](const std::vector<double>& x) {
         double sum = 7;
         for (std::size_t c = 0; c < 8; ++c) sum += (1.25 + static_cast<double>(c * c)) * x[c];
         return sum;
       }}};
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    EXPECT_LT(leastRest(rowsOf(cases[i].columns, 300, cases[i].law, 0, -1, 1), optionsOf({"identity"})), 1e-12) << i;
  }
}

TEST(SparseSums, HaveRatios) {
  const Law laws[] = {
      [](const std::vector<double>& x) { return std::pow(x[0] + 1, 3) / (x[0] * x[0] - x[0] + 1); },
      [](const std::vector<double>& x) { return (std::pow(x[0], 5) - 3 * std::pow(x[0], 3) + 1) / (x[0] * x[0] + 1); },
      [](const std::vector<double>& x) { return (std::pow(x[0], 6) + std::pow(x[0], 5)) / (1 + horner(x[0], 4)); }};
  for (const Law law : laws) {
    EXPECT_LT(leastRest(rowsOf(1, 300, law, 0, -1, 1), optionsOf({"identity"})), 1e-12);
    EXPECT_GT(leastRest(rowsOf(1, 300, law, 0, -1, 1), optionsOf({"identity"}, "add,mul")), 1e-9) << "without div";
  }
}

TEST(SparseSums, AreOfTheLinksTarget) {
  const RowSet rows = rowsOf(2, 300, [](const auto& x) { return std::exp(0.5 * x[0] - x[1] * x[1]); });
  EXPECT_LT(leastRest(rows, optionsOf({"log"})), 1e-12);
  EXPECT_GT(leastRest(rows, optionsOf({"identity"}, "add,mul")), 1e-6);
}

TEST(SparseSums, TakePartsOfTrees) {
  const RowSet rows = rowsOf(2, 300, [](const auto& x) { return std::sin(x[0] * x[1]) - 2 * x[0]; });
  const std::vector<Expression> parts = {parse("sin(x0 * x1)", Language::kInfix).value(),
                                         parse("log(x0 - x0)", Language::kInfix).value()};
  EXPECT_GT(leastRest(rows, optionsOf({"identity"})), 1e-6);
  EXPECT_LT(leastRest(rows, optionsOf({"identity"}), parts), 1e-12);
}

TEST(SparseSums, LeaveOutRowsWithoutWeight) {
  RowSet rows = rowsOf(1, 300, [](const auto& x) { return 2 * x[0] + x[0] * x[0]; });
  rows.weights.assign(rows.size(), 1);
  for (std::size_t r = 0; r < rows.size(); r += 3) {
    rows.target[r] = 1e6;
    rows.weights[r] = 0;
  }
  const SearchSetup setup = setUp(rows.view(), optionsOf({"identity"}), 0, {});
  const std::vector<Expression> trees = sparseSums(setup, 0);
  const RowSet clean = rowsOf(1, 300, [](const auto& x) { return 2 * x[0] + x[0] * x[0]; });
  double least = 1;
  for (const Expression& tree : trees) least = std::fmin(least, restOf(tree, clean, allLinks().front()));
  EXPECT_LT(least, 1e-12);
}

TEST(SparseSums, TakeTheColumnsOfAWideTableThatMatter) {
  const RowSet rows = rowsOf(700, 200, [](const auto& x) { return 2 * x[3] - x[430] + 3 * x[699]; });
  EXPECT_LT(leastRest(rows, optionsOf({"identity"})), 1e-12);
}

TEST(SparseSums, LeaveOutColumnsThatHardlyVary) {
  RowSet rows = rowsOf(3, 100, [](const std::vector<double>& x) { return 2 * x[0] + x[1] * x[1]; }, 0.1);
  Random random(4);
  for (double& value : rows.columns[2]) value = 2026 * (1 + 1e-13 * random.between(-1.0, 1.0));
  SearchOptions options = smallOptions();
  options.grammar.operators = parseOperators("add,mul,square").value();
  const SearchSetup setup = setUp(rows.view(), options, 0, {});
  for (const Expression& sum : sparseSums(setup, 0)) {
    EXPECT_THAT(print(sum, Language::kInfix), testing::Not(testing::HasSubstr("x2")));
  }
}

TEST(SparseSums, NeedSumsAndProducts) {
  const RowSet rows = rowsOf(2, 100, [](const auto& x) { return x[0] + x[1]; });
  for (const char* const operators : {"add,sin", "mul,div", "sub,div"}) {
    const SearchSetup setup = setUp(rows.view(), optionsOf({"identity"}, operators), 0, {});
    EXPECT_TRUE(sparseSums(setup, 0).empty()) << operators;
  }
}

// As many terms as rows meet any target, which is no law.
TEST(SparseSums, DoNotEndTheSearchOfASmallTable) {
  const RowSet rows = rowsOf(1, 9, [](const auto& x) { return 2 * x[0]; }, 0.3);
  SearchOptions options = smallOptions();
  options.generations = 4;
  EXPECT_EQ(search(rows.view(), options)->end, SearchEnd::kGenerations);
}

TEST(SparseSums, GiveASearchItsPolynomialAtOnce) {
  const RowSet rows = rowsOf(1, 300, [](const auto& x) { return horner(x[0], 7); }, 0, -1, 1);
  SearchOptions options = smallOptions();
  options.generations = 2;
  const SearchResult result = search(rows.view(), options).value();
  EXPECT_EQ(result.end, SearchEnd::kEnough);
  EXPECT_LT(result.state.front.chosen()->loss, 1e-18);
}

}  // namespace
}  // namespace srjit::search
