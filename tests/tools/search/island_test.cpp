#include "tools/search/island.h"

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "ir/reference.h"
#include "ir/text.h"
#include "tools/search/formulas/front.h"
#include "tools/search/link.h"

namespace srjit::search {
namespace {

Grammar grammarOfTwo() { return Grammar::create({}, 2).value(); }

struct Known {
  const char* text;
  double loss;
};

Individuals individualsOf(std::initializer_list<Known> all) {
  Individuals individuals;
  for (const auto& [text, loss] : all) {
    individuals.trees.add(parse(text, Language::kInfix).value().tokens());
    const TreeView tree = individuals.trees[individuals.size()];
    const Identity identity = identityOf(tree);
    individuals.traits.push_back(
        {.loss = loss, .shape = identity.shape, .whole = identity.whole, .complexity = tree.size()});
  }
  return individuals;
}

std::vector<std::string> textsOf(const Individuals& individuals) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < individuals.size(); ++i) {
    texts.push_back(print(expressionOf(individuals.trees[i]), Language::kInfix));
  }
  return texts;
}

Individuals offspringOf(const Island& island, const Grammar& grammar, const IslandOptions& options,
                        std::uint64_t seed) {
  Brood brood{.children = individualsOf({{"x0", 1}}), .blocks = {individualsOf({{"x1", 1}})}};  // which must go
  breed(island, grammar, options, seed, brood);
  EXPECT_EQ(brood.children.trees.size(), brood.children.size());
  return std::move(brood.children);
}

TEST(SearchIsland, BreedsByIslandGenerationAndSeedAlone) {
  const Grammar grammar = grammarOfTwo();
  const IslandOptions options{.population = 50, .offspring = 200};
  Island island;
  Individuals first = offspringOf(island, grammar, options, 1);
  for (std::size_t i = 0; i < first.size(); ++i) first.traits[i].loss = 1.0 / static_cast<double>(1 + i);
  survive(island, first, options);
  const auto children = [&](const Island& of, std::uint64_t seed) {
    return textsOf(offspringOf(of, grammar, options, seed));
  };
  const std::vector<std::string> bred = children(island, 1);
  EXPECT_GT(bred.size(), 100u);
  EXPECT_EQ(bred, children(island, 1));
  EXPECT_NE(bred, children(island, 2));
  Island other = island;
  other.number = 1;
  EXPECT_NE(bred, children(other, 1));
  ++island.generation;
  EXPECT_NE(bred, children(island, 1));
}

TEST(SearchIsland, BreedsNoTreeTwiceAndNoneThatIsThere) {
  const Grammar grammar = grammarOfTwo();
  const IslandOptions options{.population = 50, .offspring = 400};
  Island island;
  island.population = individualsOf({{"x0 + x1", 0.5}, {"x0 * x1", 0.4}});
  std::map<std::uint64_t, std::size_t> least;  // complexity, by what is the same
  for (const Traits& one : island.population.traits) least[one.whole] = one.complexity;
  const Individuals offspring = offspringOf(island, grammar, options, 3);
  EXPECT_GT(offspring.size(), 100u);
  for (std::size_t i = 0; i < offspring.size(); ++i) {
    const Traits& child = offspring.traits[i];
    const Identity identity = identityOf(offspring.trees[i]);
    const bool is_new = least.emplace(identity.whole, SIZE_MAX).second;
    EXPECT_TRUE(is_new || child.complexity < least[identity.whole]) << "neither new nor simpler";
    least[identity.whole] = child.complexity;
    EXPECT_FALSE(identity.is_constant);
    EXPECT_EQ(child.whole, identity.whole);
    EXPECT_EQ(child.shape, identity.shape);
    EXPECT_EQ(grammar.admit(offspring.trees[i]), child.complexity);
    EXPECT_EQ(child.complexity, grammar.complexityOf(expressionOf(offspring.trees[i]).tokens()));
  }
}

TEST(SearchIsland, EachComplexityKeepsItsBest) {
  Island island;
  const double infinity = std::numeric_limits<double>::infinity();
  survive(island,
          individualsOf(
              {{"x0", 0.9}, {"x1", 0.8}, {"x0 + x1", 0.95}, {"x0 * x1", 0.7}, {"x0 - x1", 0.6}, {"sin(x0)", infinity}}),
          {.population = 4, .patience = 10});
  EXPECT_THAT(textsOf(island.population), testing::ElementsAre("x1", "x0", "x0 - x1", "x0 * x1"));
  EXPECT_EQ(island.generation, 1u);
}

TEST(SearchIsland, OfOneShapeTheBestSurvives) {
  Island island;
  survive(island, individualsOf({{"2 * x0", 0.5}, {"x0 * 3", 0.4}, {"x0 * x1", 0.5}}),
          {.population = 4, .patience = 10});
  EXPECT_THAT(textsOf(island.population), testing::ElementsAre("x0 * 3", "x0 * x1"));
}

TEST(SearchIsland, OfOneFormulaTheSimplestSurvives) {
  Island island;
  survive(island, individualsOf({{"x0 * x1 + x0 * x2", 0.3 * (1 - 1e-9)}, {"x0 * (x1 + x2)", 0.3}, {"x0", 0.6}}),
          {.population = 4, .patience = 10});
  EXPECT_THAT(textsOf(island.population), testing::ElementsAre("x0", "x0 * (x1 + x2)")) << "but for rounding";
}

TEST(SearchIsland, OfFullPopulationsTheWorstGiveWay) {
  const IslandOptions options{.population = 4, .patience = 10};
  const auto after = [&](std::initializer_list<Known> children) {
    Island island;
    survive(island, individualsOf({{"x0", 0.9}, {"x1", 0.8}, {"x0 * x1", 0.7}, {"x0 - x1", 0.6}}), options);
    EXPECT_EQ(island.population.size(), 4u);
    survive(island, individualsOf(children), options);
    return textsOf(island.population);
  };
  using testing::ElementsAre;
  EXPECT_THAT(after({{"x0 + x1", 0.95}}), ElementsAre("x1", "x0", "x0 - x1", "x0 * x1"));
  EXPECT_THAT(after({{"x0 + x1", 0.65}}), ElementsAre("x1", "x0", "x0 - x1", "x0 + x1"));
  EXPECT_THAT(after({{"sin(x0)", 0.99}}), ElementsAre("x1", "sin(x0)", "x0 - x1", "x0 * x1")) << "another niche";
  EXPECT_THAT(after({{"cos(x0)", 0.5}, {"sin(x0)", 0.4}, {"exp(x0)", 0.45}}),
              ElementsAre("x1", "sin(x0)", "exp(x0)", "x0 - x1"));
}

TEST(SearchIsland, BeginsAnewWithoutProgress) {
  Island island;
  const IslandOptions options{.population = 4, .patience = 3};
  survive(island, individualsOf({{"x0", 0.9}}), options);
  for (int i = 0; i < 2; ++i) survive(island, {}, options);
  EXPECT_GT(island.population.size(), 0u);
  survive(island, individualsOf({{"x1", 0.1}}), options);
  EXPECT_GT(island.population.size(), 0u) << "progress";
  for (int i = 0; i < 3; ++i) survive(island, {}, options);
  EXPECT_EQ(island.population.size(), 0u);
  EXPECT_EQ(island.born, island.generation);
}

TEST(SearchIsland, FitsWhatHasConstantsAndWouldSurvive) {
  Island island;
  const IslandOptions options{.population = 2, .patience = 10};
  survive(island, individualsOf({{"x0", 0.5}, {"x1", 0.6}}), options);
  const Individuals offspring =
      individualsOf({{"x0 * x1", 0.4}, {"x0 + 2", 0.3}, {"x1 + 3", std::numeric_limits<double>::infinity()}});
  EXPECT_THAT(worthFitting(island, offspring, options, 10), testing::ElementsAre(1u));
  EXPECT_TRUE(worthFitting(island, offspring, options, 0).empty());
}

Formula formulaOf(const char* text, double loss, double held_out = std::nan("")) {
  const Expression expression = parse(text, Language::kInfix).value();
  return {.expression = expression, .complexity = expression.size(), .loss = loss, .held_out = held_out};
}

TEST(SearchFront, KeepsWhatNoSimplerFormulaIsAsGoodAs) {
  Front front(1e-20);
  EXPECT_TRUE(front.add(formulaOf("x0", 0.5)));
  EXPECT_TRUE(front.add(formulaOf("x0 + x1", 0.1)));
  EXPECT_FALSE(front.add(formulaOf("x0 * x1", 0.2))) << "as simple, worse";
  EXPECT_FALSE(front.add(formulaOf("sin(x0 + x1)", 0.09999))) << "no thousandth better";
  EXPECT_FALSE(front.add(formulaOf("x0 + sin(x1)", std::nan(""))));
  EXPECT_TRUE(front.add(formulaOf("sin(x0)", 0.05)));
  Front either, other;
  for (const char* text : {"x0 + x1 + 1", "x0 + x1"})
    either.add(formulaOf(text, std::string_view(text).size() > 7 ? 0.09999 : 0.1));
  for (const char* text : {"x0 + x1", "x0 + x1 + 1"})
    other.add(formulaOf(text, std::string_view(text).size() > 7 ? 0.09999 : 0.1));
  EXPECT_EQ(either.size(), 1u) << "in whatever order";
  EXPECT_EQ(other.size(), 1u);
  ASSERT_EQ(front.size(), 2u) << "x0 + x1 is beaten";
  EXPECT_TRUE(front.add(formulaOf("x0 - x1", 1e-25)));
  EXPECT_FALSE(front.add(formulaOf("x0 - x1 * 1", 1e-30))) << "below the floor all are equal";
  EXPECT_EQ(front.best()->loss, 1e-25);
  EXPECT_EQ(front.best(2)->loss, 0.05);
  EXPECT_EQ(front.best(0), nullptr);
}

TEST(SearchFront, ChoosesTheSimplestOfTheBest) {
  Front front;
  EXPECT_EQ(front.chosen(), nullptr);
  front.add(formulaOf("x0", 0.5));
  front.add(formulaOf("x0 + x1", 0.102));
  front.add(formulaOf("x0 + x1 + 1", 0.1));
  EXPECT_EQ(front.chosen()->loss, 0.102);
  Front judged;
  judged.add(formulaOf("x0", 0.5, 0.4));
  judged.add(formulaOf("x0 + x1", 0.1, 0.2));
  judged.add(formulaOf("x0 + x1 + 1", 0.05, 0.9));
  EXPECT_EQ(judged.chosen()->loss, 0.1) << "by the rows that were held out";
}

std::vector<std::string> namesOf(const std::vector<const Link*>& links) {
  std::vector<std::string> names;
  for (const Link* link : links) names.emplace_back(link->name);
  return names;
}

TEST(SearchLinks, AreThoseThatTargetAndGrammarAdmit) {
  const std::vector<double> positive = {0.5, 2, 30}, mixed = {-1, 0, 1}, constant = {3, 3};
  const auto names = [&](std::span<const double> target, GrammarOptions options = {}) {
    const Grammar grammar = Grammar::create(std::move(options), 1).value();
    return namesOf(linksFor({}, grammar, target, grammar.canScale()).value());
  };
  EXPECT_THAT(names(positive), testing::ElementsAre("identity", "inverse", "square", "inverse-square", "log"));
  EXPECT_THAT(names(mixed), testing::ElementsAre("identity", "exp")) << "neither asin nor acos is an operator";
  EXPECT_THAT(names(constant), testing::ElementsAre("identity"));
  const std::vector<double> large = {1e-30, 5, 1e200};
  EXPECT_THAT(names(large), testing::ElementsAre("identity", "log")) << "squares leave the range of f64";
  EXPECT_THAT(names(positive, {.operators = {{Op::kAdd}, {Op::kDiv}}}), testing::ElementsAre("identity", "inverse"));
  EXPECT_THAT(names(mixed, {.operators = {{Op::kAdd}, {Op::kMul}, {Op::kAsin}}}),
              testing::ElementsAre("identity", "sin"));
  EXPECT_THAT(names(positive, {.nesting = {{Op::kInv, Op::kSqrt, 0}}}),
              testing::ElementsAre("identity", "inverse", "square", "log"))
      << "no root within a reciprocal";
  EXPECT_THAT(names(positive, {.operators = {{Op::kAdd}, {Op::kMul}, {Op::kExp, 39}}}),
              testing::ElementsAre("identity"))
      << "a wrapper of complexity 43";
}

TEST(SearchLinks, OfUnknownOrUnfitNamesAreErrors) {
  const Grammar grammar = Grammar::create({}, 1).value();
  const std::vector<double> target = {-1, 1};
  const auto message = [&](const char* name, const Grammar& of) {
    const std::vector<std::string> names = {name};
    return linksFor(names, of, target, true).error().message;
  };
  EXPECT_THAT(message("cube", grammar), testing::HasSubstr("unknown link 'cube'; there are"));
  EXPECT_THAT(message("log", grammar), testing::HasSubstr("link log"));
  EXPECT_THAT(message("sin", grammar), testing::HasSubstr("add asin, or leave out the link"));
  const Grammar small = Grammar::create({.operators = {{Op::kAdd}, {Op::kAsin, 40}}}, 1).value();
  EXPECT_THAT(message("sin", small), testing::HasSubstr("leaves no formula of link sin"));
  const std::vector<std::string> fit = {"identity", "exp"};
  EXPECT_EQ(linksFor(fit, grammar, target, true)->size(), 2u);
}

TEST(SearchLinks, InverseUndoesForward) {
  for (const Link& link : allLinks()) {
    std::vector<Token> tree = {Token::variable(0)};
    for (const Op op : link.inverse) tree.push_back(Token::operation(op));
    const Expression inverse = Expression::create(tree).value();
    int admitted = 0;
    for (const double y : {-40.0, -1.5, -0.2, 0.0, 0.3, 1.2, 3.0, 17.0}) {
      if (!link.admits(y)) continue;
      ++admitted;
      const double forward = link.forward(y);
      EXPECT_NEAR(evaluateReference(inverse, std::span(&forward, 1), {}), y, 1e-12 * (1 + std::fabs(y))) << link.name;
    }
    EXPECT_GE(admitted, 3) << link.name;
  }
}

}  // namespace
}  // namespace srjit::search
