// The walk over tokens gives the graphs of the standard pipeline.
#include "passes/expression_optimizer.h"

#include <gtest/gtest.h>

#include "passes/pass.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

class Optimizer : public testing::TestWithParam<std::tuple<Precision, Math>> {
 protected:
  Precision precision() const { return std::get<0>(GetParam()); }
  Math math() const { return std::get<1>(GetParam()); }
  Dag pipelineOf(std::span<const Expression> batch) const {
    return Pipeline::standard(math()).run(Dag::fromExpressions(batch, precision()), {math()});
  }
};

GeneratorOptions everything(std::uint64_t seed) {
  GeneratorOptions options;
  options.seed = seed;
  options.min_nodes = 1;
  options.max_nodes = 40;
  options.variables = 3;
  options.parameters = 2;
  options.constant_probability = 0.3;
  options.parameter_probability = 0.2;
  options.special_probability = 0.2;
  return options;
}

TEST_P(Optimizer, GivesThePipelinesGraphOfOneExpression) {
  ExpressionGenerator generator(everything(71));
  ExpressionOptimizer optimizer(precision(), math());
  for (int i = 0; i < 20'000; ++i) {
    const Expression expression = generator.next();
    optimizer.run(expression.tokens(), 0);
    ASSERT_EQ(optimizer.scheduled(), pipelineOf({&expression, 1}))
        << print(expression, Language::kInfix) << "\n" << printDag(optimizer.scheduled()) << printDag(pipelineOf({&expression, 1}));
  }
}

TEST_P(Optimizer, GivesThePipelinesGraphOfABatch) {
  ExpressionGenerator generator(everything(72));
  for (const std::size_t count : {1, 2, 50, 300}) {
    const std::vector<Expression> batch = generator.batch(count);
    BatchOptimizer optimizer(precision(), math());
    for (const Expression& expression : batch) optimizer.add(expression.tokens());
    ASSERT_EQ(optimizer.take(), pipelineOf(batch)) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Optimizer,
                         testing::Combine(testing::ValuesIn(kPrecisions), testing::ValuesIn(kMathModes)),
                         [](const auto& row) {
                           return std::string(nameOf(std::get<0>(row.param))) + "_" + nameOf(std::get<1>(row.param));
                         });

}  // namespace
}  // namespace srjit
