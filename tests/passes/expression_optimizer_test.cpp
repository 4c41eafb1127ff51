// The walk over tokens gives the graphs of the standard pipeline.
#include "passes/expression_optimizer.h"

#include <gtest/gtest.h>

#include "passes/gradient/deriver.h"
#include "passes/pass.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

class Optimizer : public testing::TestWithParam<std::tuple<Precision, Math>> {
 protected:
  Precision precision() const { return std::get<0>(GetParam()); }
  Math math() const { return std::get<1>(GetParam()); }
};

Dag graphBy(BatchOptimizer& optimizer, std::span<const Expression> batch) {
  const Population population(batch);
  for (std::size_t e = 0; e < population.size(); ++e) optimizer.add(population[e]);
  return optimizer.take();
}

// One optimizer for all, so that what an expression leaves behind would be seen.
void expectPipelinesGraphs(Precision precision, Math math, std::uint64_t seed, int expressions) {
  ExpressionGenerator generator = expressionsOfAllOperators(seed);
  BatchOptimizer optimizer(precision, math);
  const Pipeline pipeline = Pipeline::standard(math);
  for (int i = 0; i < expressions; ++i) {
    const Expression expression = generator.next();
    const Dag made = graphBy(optimizer, {&expression, 1});
    const Dag expected = pipeline.run(graphOf(expression, precision), {math});
    ASSERT_EQ(made, expected) << textOf(expression) << '\n' << printDag(made) << "expected\n" << printDag(expected);
  }
}

TEST_P(Optimizer, GivesThePipelinesGraphOfOneExpression) { expectPipelinesGraphs(precision(), math(), 71, 5'000); }

// A million in all modes together.
class OptimizerSlow : public Optimizer {};
TEST_P(OptimizerSlow, GivesThePipelinesGraphOfAnyExpression) {
  expectPipelinesGraphs(precision(), math(), 73, 167'000);
}

TEST_P(Optimizer, ListsTheNodesThatTheRootNeeds) {
  ExpressionGenerator generator = expressionsOfAllOperators(74);
  ExpressionOptimizer optimizer(precision(), math());
  for (int i = 0; i < 2'000; ++i) {
    const Expression expression = generator.next();
    const Population population({&expression, 1});
    optimizer.run(population[0], 0);
    const ExpressionGraph graph = optimizer.graph();
    std::vector<bool> seen(graph.dag.size());
    std::vector<std::uint32_t> uses(graph.dag.size());
    ++uses[graph.root()];
    for (const NodeId id : graph.members) {
      ASSERT_FALSE(seen[id]) << "listed twice";
      seen[id] = true;
      for (const NodeId operand : graph.dag.node(id).inputs()) {
        ASSERT_TRUE(seen[operand]) << "an operand comes after its user";
        ++uses[operand];
      }
    }
    for (const NodeId id : graph.members) ASSERT_EQ(graph.uses[id], uses[id]);
  }
}

// Postfix of a leaning tree, whose walk may not be recursive.
TEST_P(Optimizer, TakesAnyDepth) {
  std::vector<Token> tokens{Token::variable(0)};
  for (int i = 0; i < 200'000; ++i) {
    tokens.push_back(Token::variable(static_cast<std::uint32_t>(i % 3)));
    tokens.push_back(Token::operation(i % 2 == 0 ? Op::kMul : Op::kSub));
    tokens.push_back(Token::operation(Op::kSin));
  }
  BatchOptimizer optimizer(precision(), math());
  EXPECT_GT(graphBy(optimizer, std::vector{Expression::create(std::move(tokens)).value()}).size(), 400'000U);
}

// Each of its expressions has the graph that it has in a batch of its own.
TEST_P(Optimizer, GivesThePipelinesGraphOfABatch) {
  ExpressionGenerator generator = expressionsOfAllOperators(72);
  const Pipeline pipeline = Pipeline::standard(math());
  for (const std::size_t count : {1, 2, 50, 300}) {
    const std::vector<Expression> some = generator.batch(count);
    std::vector<Expression> batch = some;  // all of them twice, in two orders
    batch.insert(batch.end(), some.rbegin(), some.rend());
    BatchOptimizer optimizer(precision(), math());
    const Dag made = graphBy(optimizer, batch);
    ASSERT_EQ(made, pipeline.run(Dag::fromExpressions(batch, precision()), {math()})) << count;
    for (std::size_t e = 0; e < batch.size(); ++e) {
      const Dag alone = pipeline.run(graphOf(batch[e], precision()), {math()});
      ASSERT_EQ(made.toExpression(e).value(), alone.toExpression(0).value()) << textOf(batch[e]);
    }
  }
}

std::string nameOfModes(const testing::TestParamInfo<std::tuple<Precision, Math>>& row) {
  return std::string(nameOf(std::get<0>(row.param))) + "_" + nameOf(std::get<1>(row.param));
}
const auto kEveryMode = testing::Combine(testing::ValuesIn(kPrecisions), testing::ValuesIn(kMathModes));
INSTANTIATE_TEST_SUITE_P(Modes, Optimizer, kEveryMode, nameOfModes);
INSTANTIATE_TEST_SUITE_P(Modes, OptimizerSlow, kEveryMode, nameOfModes);

}  // namespace
}  // namespace srjit
