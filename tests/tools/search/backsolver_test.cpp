#include "tools/search/trees/backsolver.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "ir/text.h"
#include "tests/tools/search/small_runs.h"
#include "tools/search/trees/variation.h"

namespace srjit::search {
namespace {

using Law = double (*)(const std::vector<double>&);

std::vector<double> valuesOf(const TreeView& tree, const std::vector<std::vector<double>>& columns) {
  const std::size_t rows = columns.front().size();
  const std::vector<double> values = subtreeValues(tree, columns, rows);
  return {values.end() - static_cast<std::ptrdiff_t>(rows), values.end()};
}

/// With a column in the place of a subtree.
std::vector<double> valuesWith(const TreeView& tree, std::size_t last, std::vector<std::vector<double>> columns,
                               std::vector<double> by) {
  Trees variable, edited;
  variable.put(variableCode(static_cast<std::uint32_t>(columns.size())));
  edited.put(tree, Edit{subtreeBegin(tree.codes, last), last + 1, variable.open()});
  columns.push_back(std::move(by));
  return valuesOf(edited.open(), columns);
}

TEST(Backsolver, WantedValuesGiveTheTreeItsTarget) {
  const Grammar grammar =
      Grammar::create({.operators = parseOperators("add,sub,mul,div,pow,neg,inv,square,cube,sqrt,abs,exp,log,sin,cos,"
                                                   "tan,tanh,asin,acos,atan")
                                        .value()},
                      2)
          .value();
  const RowSet rows = rowsOf(2, 40, [](const auto& x) { return x[0]; }, 0, -2, 2);
  Random random(3);
  std::size_t solved = 0, slopes = 0, paths = 0;
  for (int turn = 0; turn < 3000; ++turn) {
    Trees tree, other;
    putRandomTree(tree, grammar, 1 + random.below(14), random);
    putRandomTree(other, grammar, 1 + random.below(4), random);
    const TreeView view = tree.open();
    const std::size_t last = random.below(view.size());
    // What the tree is with another subtree there, so it can be reached.
    const std::vector<double> target = valuesWith(view, last, rows.columns, valuesOf(other.open(), rows.columns));
    const auto wanted = wantedOf(view, last, subtreeValues(view, rows.columns, rows.size()), target);
    ASSERT_TRUE(wanted) << "each of these operators has an inverse";
    const std::vector<double> met = valuesWith(view, last, rows.columns, wanted->values);
    std::vector<double> near = wanted->values, beside = near;
    for (double& value : near) value -= 1e-4 * std::fabs(value);
    for (double& value : beside) value += 1e-4 * std::fabs(value);
    const std::vector<double> below = valuesWith(view, last, rows.columns, near);
    const std::vector<double> above = valuesWith(view, last, rows.columns, beside);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      // Where a wanted value's rounding shows in the tree, it says nothing.
      const double rounding = 1e-12 * std::fabs(wanted->slopes[r] * wanted->values[r]);
      if (wanted->slopes[r] == 0 || rounding > 1e-4 * std::fabs(target[r])) continue;
      EXPECT_LE(std::fabs(met[r] - target[r]), 1e-4 * std::fabs(target[r]))
          << print(expressionOf(view), Language::kInfix) << ", token " << last << ", row " << r;
      const double slope = (above[r] - below[r]) / (beside[r] - near[r]);
      slopes += std::fabs(slope - wanted->slopes[r]) <= 0.01 * std::fabs(slope) ? 1 : 0;
      ++solved;
    }
    paths += last + 1 < view.size() ? 1 : 0;
  }
  EXPECT_GT(paths, 1500u);
  EXPECT_GT(solved, 50'000u) << "of 120,000";
  EXPECT_GT(slopes, solved * 9 / 10) << "but those beside a pole or a branch";
}

TEST(Backsolver, HasNoValueWhereThereIsNoInverse) {
  const Trees tree = treeOf("exp(x0) + max(x0, x1)");
  const std::vector<std::vector<double>> columns = {{1, 2, 3}, {0, 1, 2}};
  const std::vector<double> values = subtreeValues(tree[0], columns, 3);
  const auto wanted = wantedOf(tree[0], 0, values, std::vector<double>{10, 2, std::nan("")});
  ASSERT_TRUE(wanted);
  EXPECT_DOUBLE_EQ(wanted->values[0], std::log(9.0));
  EXPECT_THAT(wanted->slopes, testing::ElementsAre(testing::DoubleNear(9, 1e-12), 0, 0)) << "log(0), NaN";
  EXPECT_FALSE(wantedOf(tree[0], 2, values, std::vector<double>{1, 2, 3})) << "max has no inverse";
}

/// The least relative error of what one of 2000 edits makes of a tree, up to a factor: targets are scaled.
double leastError(const RowSet& rows, Law law, const char* text, const std::vector<const char*>& others = {}) {
  SearchOptions options = smallOptions();
  options.links = {"identity"};
  const SearchSetup setup = setUp(rows.view(), options, 0, {});
  const Backsolver backsolver(setup, 0);
  Trees parts, memory, edited;
  for (const char* part : others) parts.append(treeOf(part));
  std::vector<TreeView> views;
  for (std::size_t i = 0; i < parts.size(); ++i) views.push_back(parts[i]);
  const Trees tree = treeOf(text);
  double least = std::numeric_limits<double>::infinity();
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    Random random(seed);
    const std::optional<Edit> edit = backsolver.solve(tree[0], views, random, memory);
    if (!edit || edit->end - edit->begin == tree[0].size()) continue;  // not the whole
    edited.drop();
    edited.put(tree[0], *edit);
    const std::vector<double> values = valuesOf(edited.open(), rows.columns);
    double most = 0, factor = 0;
    std::vector<double> row(rows.columns.size());
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::size_t c = 0; c < row.size(); ++c) row[c] = rows.columns[c][r];
      if (r == 0) factor = values[r] / law(row);
      most = std::fmax(most, std::isfinite(values[r]) ? std::fabs(values[r] / factor / law(row) - 1) : 1e300);
    }
    if (std::isnormal(factor)) least = std::fmin(least, most);
  }
  return least;
}

TEST(Backsolver, FindsTheRestOfALaw) {
  struct Case {
    std::size_t columns;
    Law law;
    const char* tree;
  };
  const Case cases[] = {
      {3, [](const auto& x) { return (x[0] * x[1] + x[1] * x[2]) / (x[0] + x[2] * x[2]); }, "x1 / (x0 + x2 * x2)"},
      {3, [](const auto& x) { return x[0] / (1 + std::exp(x[1] * (x[2] - 2))); }, "x0 / (1 + x1)"},
      {3, [](const auto& x) { return x[0] - 3 / (x[1] + 2 * x[2]); }, "x0 - x1"},
      {2, [](const auto& x) { return x[0] - std::sqrt(x[1] * x[1] + 1); }, "x0 + x1"},
      {2, [](const auto& x) { return std::exp(x[0]) * std::sqrt(2 * x[0] + x[1]); }, "exp(x0) * x1"}};
  for (const auto& [columns, law, tree] : cases) {
    RowSet rows = rowsOf(columns, 200, law);
    EXPECT_LT(leastError(rows, law, tree), 1e-9) << tree;
    // Rows without weight do not count.
    rows.weights.assign(rows.size(), 1);
    for (std::size_t r = 0; r < rows.size(); r += 3) rows.target[r] = rows.weights[r] = 0;
    EXPECT_LT(leastError(rows, law, tree), 1e-9) << tree;
  }
  const Law hidden = [](const auto& x) { return x[0] / (2 + std::sin(x[0] * x[1] * x[1])); };
  const RowSet rows = rowsOf(2, 200, hidden);
  EXPECT_GT(leastError(rows, hidden, "x0 / x1"), 1e-6);
  EXPECT_LT(leastError(rows, hidden, "x0 / x1", {"3 * sin(x0 * x1 * x1)"}), 1e-9) << "a part of another tree";
}

}  // namespace
}  // namespace srjit::search
