#include "tools/search/trees/arrays.h"

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "ir/text.h"
#include "tests/tools/search/small_runs.h"
#include "tools/search/formulas/rounding.h"
#include "tools/search/rows.h"
#include "tools/search/screen.h"
#include "tools/search/trees/identity.h"
#include "tools/search/trees/variation.h"

namespace srjit::search {
namespace {

std::string infixOf(const TreeView& tree) { return print(expressionOf(tree), Language::kInfix); }

/// Copies the tree after an edit; expressionOf() throws if it is not valid.
Trees editedBy(const TreeView& tree, const Edit& edit) {
  Trees trees;
  trees.put(tree, edit);
  trees.close();
  expressionOf(trees[0]);
  return trees;
}

TEST(SearchTrees, AreWhatAnEngineTakes) {
  Trees trees = treeOf("x0 * 2 + x1"), more = treeOf("sin(x2)");
  more.add(std::vector{Token::constant(0.5)});
  trees.append(more);
  const PopulationView view = trees.view();
  ASSERT_EQ(view.size(), 3u);
  EXPECT_TRUE(checkArrays(view).ok());
  EXPECT_THAT(std::vector(view.offsets.begin(), view.offsets.end()), testing::ElementsAre(0, 5, 7, 8));
  EXPECT_EQ(infixOf(trees[0]), "x0 * 2 + x1");
  EXPECT_EQ(infixOf(trees[1]), "sin(x2)");
  EXPECT_EQ(infixOf(trees[2]), "0.5");
  trees.put(trees[1].codes[0]);
  EXPECT_EQ(trees.open().size(), 1u);
  EXPECT_EQ(trees.view().codes.size(), 8u) << "an open tree is none yet";
  trees.drop();
  trees.constantsOf(2)[0] = 7;
  EXPECT_EQ(infixOf(trees[2]), "7");
  trees.clear();
  EXPECT_EQ(trees.view().size(), 0u);
}

TEST(SearchTrees, GrowToTheWantedComplexity) {
  const Grammar grammar = Grammar::create({}, 3).value();
  Random random(7);
  std::set<std::string> seen;
  for (std::size_t complexity = 1; complexity <= 30; ++complexity) {
    for (int i = 0; i < 20; ++i) {
      Trees trees;
      const std::size_t grown = putRandomTree(trees, grammar, complexity, random);
      const Expression tree = expressionOf(trees.open());
      EXPECT_EQ(grown, grammar.complexityOf(tree.tokens()));
      EXPECT_GE(grown, complexity);
      EXPECT_LE(grown, complexity + 1);
      seen.insert(print(tree, Language::kPostfix));
    }
  }
  EXPECT_GT(seen.size(), 400u);
}

TEST(SearchTrees, GrowFromLeavesThatWeighMore) {
  const Grammar grammar = Grammar::create({.operators = {{Op::kSin}}, .max_complexity = 2}, 1).value();
  Random random(1);
  Trees trees;
  EXPECT_EQ(putRandomTree(trees, grammar, 5, random), 5u) << "only sines";
  const Grammar heavy =
      Grammar::create({.operators = {{Op::kPow, 2}, {Op::kIf, 7}}, .variable_complexity = 3, .constant_complexity = 5},
                      1)
          .value();
  for (std::size_t complexity = 1; complexity < 40; ++complexity) {
    trees.clear();
    const std::size_t grown = putRandomTree(trees, heavy, complexity, random);
    EXPECT_EQ(grown, heavy.complexityOf(expressionOf(trees.open()).tokens()));
    EXPECT_GE(grown, complexity);
  }
}

TEST(SearchTrees, ChangesAreValidTreesOfTheGrammarsOperators) {
  const Grammar grammar = Grammar::create({.operators = {{Op::kAdd}, {Op::kMul}, {Op::kSin}, {Op::kIf}}}, 2).value();
  Random random(3);
  std::vector<Trees> trees = {treeOf("x0 + sin(2 * x1)"), treeOf("x0"), treeOf("if(x0, x1, 1)")};
  Trees memory;
  std::size_t changes = 0;
  for (int i = 0; i < 3000; ++i) {
    Trees child = trees[random.below(trees.size())];
    if (random.chance(0.5)) {
      child = editedBy(child[0], crossover(child[0], trees[random.below(trees.size())][0], random));
    }
    const Trees mutant = editedBy(child[0], mutation(child[0], grammar, random, memory));
    changes += infixOf(mutant[0]) != infixOf(child[0]) ? 1 : 0;
    for (std::size_t t = 0; t < mutant[0].size(); ++t) {
      const Token token = mutant[0][t];
      ASSERT_TRUE(token.kind != Token::Kind::kOp || grammar.has(token.op));
      ASSERT_TRUE(token.kind != Token::Kind::kVariable || token.index < 2);
    }
    if (mutant[0].size() < 60) trees[random.below(trees.size())] = mutant;
  }
  EXPECT_GT(changes, 2000u);
}

TEST(SearchTrees, ConstantsBecomeParameters) {
  const Trees trees = treeOf("2 * sin(x0 + 0.5) - 2");
  FitBatch batch;
  batch.add(trees[0], Exponents::kFitted);
  EXPECT_THAT(batch.starts, testing::ElementsAre(2, 0.5, 2));
  EXPECT_EQ(constantsIn(trees[0]), 3u);
  EXPECT_EQ(constantsIn(batch.trees[0]), 0u);
  EXPECT_EQ(infixOf(batch.trees[0]), "p0 * sin(x0 + p1) - p2");
}

TEST(SearchTrees, WholeExponentsCanBeKept) {
  const Trees trees = treeOf("3 * x0^2 + x1^-1.5 + x0^(2 + x1)");
  const auto ways = [](const char* text) { return waysToFit(treeOf(text)[0]).size(); };
  EXPECT_EQ(ways("3 * x0^2"), 2u);
  EXPECT_EQ(ways("3 * x0^1.5"), 1u);
  EXPECT_EQ(waysToFit(trees[0]).front(), Exponents::kWholeKept);
  EXPECT_EQ(waysToFit(trees[0]).back(), Exponents::kFitted);
  FitBatch batch;
  batch.add(trees[0], Exponents::kWholeKept);
  EXPECT_THAT(batch.starts, testing::ElementsAre(3, -1.5, 2));
  EXPECT_EQ(infixOf(batch.trees[0]), "p0 * x0^2 + x1^p1 + x0^(p2 + x1)");
  EXPECT_EQ(constantsIn(trees[0], Exponents::kWholeKept), 3U);
  EXPECT_EQ(constantsIn(trees[0]), 4U);
  const std::vector<Token> tokens = {Token::variable(0), Token::constant(3), Token::operation(Op::kPow)};
  EXPECT_EQ(constantsIn(std::span(tokens), Exponents::kWholeKept), 0u) << "the same of tokens";
}

TEST(SearchIdentity, OfEquivalentTreesIsTheSame) {
  const auto of = [&](const char* text) { return identityOf(treeOf(text)[0]); };
  for (const auto& [one, other] :
       std::initializer_list<std::pair<const char*, const char*>>{{"x0 * x0", "square(x0)"},
                                                                  {"x0 * x0 * x0", "cube(x0)"},
                                                                  {"x0 + (x1 + x2)", "x2 + x1 + x0"},
                                                                  {"x0 - x1", "neg(x1) + x0"},
                                                                  {"x0 / x1 / x2", "x0 / (x2 * x1)"},
                                                                  {"x0 / (x1 / x2)", "x2 * (x0 * inv(x1))"},
                                                                  {"x0 * (x1 + x2)", "x0 * x1 + x2 * x0"},
                                                                  {"sin(x0 + x1) * 3", "3 * sin(x1 + x0)"},
                                                                  {"min(x0, x1)", "min(x1, x0)"},
                                                                  {"fma(x0, x1, x2)", "fma(x1, x0, x2)"},
                                                                  {"x0 / (x1 + x2)", "inv(x2 + x1) * x0"}}) {
    EXPECT_EQ(of(one).whole, of(other).whole) << one << " and " << other;
  }
  EXPECT_EQ(of("sin(x0 - x1) / x2").shape, of("inv(x2) * sin(neg(x1) + x0)").shape);
  // Their shapes differ, since other constants make them different.
  EXPECT_EQ(of("x0 * (x1 + 0)").whole, of("x1 * x0").whole);
  EXPECT_EQ(of("x0 * 1 + x0").whole, of("2 * x0").whole);
  EXPECT_EQ(of("x0 + (x1 - x1)").whole, of("x0").whole);
}

TEST(SearchIdentity, OfDifferentTreesDiffers) {
  std::set<std::uint64_t> shapes, wholes;
  const char* const texts[] = {"x0",
                               "x1",
                               "x0 + x1",
                               "x0 - x1",
                               "x1 - x0",
                               "x0 * x1",
                               "x0 / x1",
                               "x1 / x0",
                               "neg(x0)",
                               "sin(x0)",
                               "cos(x0)",
                               "sin(x0 + x1)",
                               "sin(x0) + x1",
                               "sqrt(x0 * x1)",
                               "square(x0 + x1)",
                               "min(x0, x1)",
                               "max(x0, x1)",
                               "x0^x1",
                               "x1^x0",
                               "if(x0, x1, x2)",
                               "if(x1, x0, x2)",
                               "x0 / (x1 + x2)",
                               "x0 / (x1 - x2)",
                               "2 * x0",
                               "x0 + 2",
                               "sin(2 * x0)",
                               "2 * sin(x0)",
                               "2 + 2 * x0",
                               "2 * x0 + 2 * x1",
                               "x0 * (2 + x1)",
                               "x0 * 3 / 2",
                               "x0 + 3 - 2",
                               "3.5 * x0 - 2 * x0",
                               "3 * sin(x0) - 2 * sin(x0) + x0"};
  for (const char* text : texts) {
    const Identity identity = identityOf(treeOf(text)[0]);
    EXPECT_TRUE(shapes.insert(identity.shape).second) << text;
    EXPECT_TRUE(wholes.insert(identity.whole).second) << text;
    EXPECT_FALSE(identity.is_constant) << text;
  }
}

TEST(SearchIdentity, TheShapeIsWithoutConstants) {
  const auto of = [&](const char* text) { return identityOf(treeOf(text)[0]); };
  for (const auto& [one, other] :
       std::initializer_list<std::pair<const char*, const char*>>{{"2 * x0", "x0 * 3"},
                                                                  {"2 * x0", "x0 * (0.25 * 7)"},
                                                                  {"x0 / 3", "x0 / 0.5"},
                                                                  {"3 * sin(x1 + 0.5)", "sin(2 + x1) * 4"},
                                                                  {"sin(1.5) + x0", "x0 + 4"}}) {
    EXPECT_EQ(of(one).shape, of(other).shape) << one << " and " << other;
    EXPECT_NE(of(one).whole, of(other).whole) << one << " and " << other;
  }
}

TEST(SearchIdentity, KnowsConstants) {
  for (const char* text : {"2", "sin(2) * 0.5", "x0 - x0 + 2", "x0 / x0", "(x0 + 3) - x0", "sin(x0 - x0)", "x0 * 0"}) {
    EXPECT_TRUE(identityOf(treeOf(text)[0]).is_constant) << text;
  }
  EXPECT_FALSE(identityOf(treeOf("x0 - x1")[0]).is_constant);
  EXPECT_FALSE(identityOf(treeOf("square(square(square(x0 + x1)))")[0]).is_constant);
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
