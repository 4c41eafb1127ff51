#include "tools/search/tree.h"

#include <cmath>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "ir/text.h"
#include "tools/search/formulas/rounding.h"
#include "tools/search/rows.h"

namespace srjit::search {
namespace {

Tree treeOf(const char* text) {
  const Expression expression = parse(text, Language::kInfix).value();
  return {expression.tokens().begin(), expression.tokens().end()};
}

bool isValid(const Tree& tree) { return Expression::create(tree).ok(); }

TEST(SearchTree, GrowsTreesOfTheWantedComplexity) {
  const Grammar grammar = Grammar::create({}, 3).value();
  Random random(7);
  std::set<std::string> seen;
  for (std::size_t complexity = 1; complexity <= 30; ++complexity) {
    for (int i = 0; i < 20; ++i) {
      const Tree tree = randomTree(grammar, complexity, random);
      ASSERT_TRUE(isValid(tree));
      EXPECT_GE(grammar.complexityOf(tree), complexity);
      EXPECT_LE(grammar.complexityOf(tree), complexity + 1);
      seen.insert(print(Expression::create(tree).value(), Language::kPostfix));
    }
  }
  EXPECT_GT(seen.size(), 400u);
}

TEST(SearchTree, GrowsALeafWhereThereAreOnlyLeaves) {
  const Grammar grammar = Grammar::create({.operators = {{Op::kSin}}, .max_complexity = 2}, 1).value();
  Random random(1);
  EXPECT_TRUE(isValid(randomTree(grammar, 5, random)));
}

TEST(SearchTree, ChangesAreValidTreesOfTheGrammarsOperators) {
  const Grammar grammar = Grammar::create({.operators = {{Op::kAdd}, {Op::kMul}, {Op::kSin}, {Op::kIf}}}, 2).value();
  Random random(3);
  std::vector<Tree> trees = {treeOf("x0 + sin(2 * x1)"), treeOf("x0"), treeOf("if(x0, x1, 1)")};
  for (int i = 0; i < 3000; ++i) {
    Tree child = trees[random.below(trees.size())];
    if (random.chance(0.5)) child = crossover(child, trees[random.below(trees.size())], random);
    ASSERT_TRUE(isValid(child));
    mutate(child, grammar, random);
    ASSERT_TRUE(isValid(child));
    for (const Token& token : child) {
      ASSERT_TRUE(token.kind != Token::Kind::kOp || grammar.has(token.op));
      ASSERT_TRUE(token.kind != Token::Kind::kVariable || token.index < 2);
    }
    if (child.size() < 60) trees[random.below(trees.size())] = child;
  }
}

TEST(SearchTree, ConstantsComeOutAndGoBack) {
  const Tree tree = treeOf("2 * sin(x0 + 0.5) - 2");
  std::vector<double> values;
  const Tree open = withoutConstants(tree, values);
  EXPECT_THAT(values, testing::ElementsAre(2, 0.5, 2));
  EXPECT_EQ(constantsIn(tree), 3u);
  EXPECT_EQ(constantsIn(open), 0u);
  EXPECT_EQ(print(Expression::create(open).value(), Language::kInfix), "p0 * sin(x0 + p1) - p2");
  EXPECT_EQ(withParameters(Expression::create(open).value(), values).value(), Expression::create(tree).value());
}

TEST(SearchTree, EquivalentTreesHaveOneForm) {
  const auto form = [&](const char* text) { return canonicalOf(treeOf(text)); };
  EXPECT_EQ(form("x0 * (x1 + 0)").whole, form("x1 * x0").whole);
  EXPECT_EQ(form("x0 * x0").whole, form("square(x0)").whole);
  EXPECT_EQ(form("2 * x0").shape, form("x0 * 3").shape);
  EXPECT_NE(form("2 * x0").whole, form("x0 * 3").whole);
  EXPECT_NE(form("x0 + x1").shape, form("x0 - x1").shape);
  EXPECT_TRUE(form("x0 - x0 + 2").is_constant);
  EXPECT_FALSE(form("x0 - x1").is_constant);
}

TEST(SearchRounding, FindsTheNumbersOfLaws) {
  const double pi = 3.14159265358979312;
  EXPECT_EQ(simplestNear(2.0000001, 1e-6), 2);
  EXPECT_EQ(simplestNear(1e-12, 1e-9), 0);
  EXPECT_EQ(simplestNear(-0.3333333, 1e-6), -1 / 3.0);
  EXPECT_NEAR(*simplestNear(0.0795774716, 1e-8), 1 / (4 * pi), 1e-16);
  EXPECT_NEAR(*simplestNear(0.39894228, 1e-8), 0.3989422804014327, 1e-16);
  EXPECT_FALSE(simplestNear(0.123456789, 1e-9));
  EXPECT_FALSE(simplestNear(std::nan(""), 1));
  EXPECT_EQ(shortestNear(2.718281828, 0.004), 2.72);
  EXPECT_EQ(shortestNear(-123456.0, 600), -123000);
  EXPECT_EQ(shortestNear(0.25, 0), 0.25);
  EXPECT_EQ(shortestNear(0.1, 0), 0.1);
  EXPECT_EQ(shortestNear(0.001, 0.01), 0);
}

TEST(SearchRounding, NumbersOfExactFormulasAreShortestFirst) {
  EXPECT_THAT(numbersNear(9.809999999999995, 1e-3), testing::ElementsAre(9.81, 9.809999999999995));
  EXPECT_THAT(numbersNear(-2, 0), testing::ElementsAre(-2));
  const std::vector<double> thirds = numbersNear(1 / 3.0, 1e-7);
  EXPECT_EQ(thirds[0], 0.3333333);
  EXPECT_EQ(thirds[3], 1 / 3.0) << "before the decimals of ten digits and more";
  EXPECT_EQ(thirds.size(), 10u);
  EXPECT_TRUE(numbersNear(std::nan(""), 1).empty());
  EXPECT_EQ(digitsOf(-9.81e-20), 3);
  EXPECT_EQ(digitsOf(602214076), 9);
  EXPECT_EQ(digitsOf(4 * std::numbers::pi), 10);
  EXPECT_EQ(digitsOf(0.1234567890123), 14);
  EXPECT_EQ(digitsOf(9.809999999999995), 17);
}

TEST(SearchRows, DrawsDifferentRowsInOrder) {
  const std::vector<std::size_t> rows = drawRows(1000, 100, 5);
  ASSERT_EQ(rows.size(), 100u);
  for (std::size_t i = 1; i < rows.size(); ++i) EXPECT_LT(rows[i - 1], rows[i]);
  EXPECT_LT(rows.back(), 1000u);
  EXPECT_EQ(rows, drawRows(1000, 100, 5));
  EXPECT_NE(rows, drawRows(1000, 100, 6));
  EXPECT_EQ(drawRows(3, 3, 1), (std::vector<std::size_t>{0, 1, 2}));
}

TEST(SearchRows, GathersColumnsOfEitherType) {
  const std::vector<float> narrow = {1, 2, 3};
  const std::vector<double> wide = {4, 5, 6}, weights = {7, 8, 9};
  const DataView data{.columns = {narrow, wide}, .target = ColumnView(wide), .weights = ColumnView(weights)};
  const std::vector<std::size_t> rows = {0, 2};
  const RowSet set = gatherRows(data, rows);
  EXPECT_EQ(set.columns, (std::vector<std::vector<double>>{{1, 3}, {4, 6}}));
  EXPECT_EQ(set.target, (std::vector<double>{4, 6}));
  EXPECT_EQ(set.weights, (std::vector<double>{7, 9}));
  EXPECT_EQ(set.view().columns.size(), 2u);
}

}  // namespace
}  // namespace srjit::search
