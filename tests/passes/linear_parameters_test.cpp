#include "passes/gradient/linear_parameters.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "passes/expression_optimizer.h"
#include "passes/gradient/deriver.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

using Indices = std::vector<std::uint32_t>;

/// f and its derivatives as an engine of this mode has them.
Dag differentiated(const Expression& expression, Math math, Precision precision) {
  ExpressionOptimizer optimizer(precision, math);
  optimizer.run(Population({&expression, 1})[0], 0);
  const ExpressionGraph graph = optimizer.graph();
  Dag result(precision);
  Deriver(precision, math).differentiate(graph.dag, graph.root(), expression.parameterCount(), result);
  return result;
}

Indices found(const Dag& derived) {
  LinearParameters finder;
  const std::span<const std::uint32_t> all = finder.find(derived, derived.roots().subspan(1));
  return {all.begin(), all.end()};
}

class LinearParametersModes : public testing::TestWithParam<std::tuple<Precision, Math>> {
 protected:
  static Indices linearOf(std::string_view text) {
    const auto [precision, math] = GetParam();
    return found(differentiated(infix(text), math, precision));
  }
};

TEST_P(LinearParametersModes, AreThoseThatNoDerivativeOfThemContains) {
  EXPECT_EQ(linearOf("p0 * x0 + p1"), (Indices{0, 1}));
  EXPECT_EQ(linearOf("p0 * exp(p1 * x0) + p2"), (Indices{0, 2}));
  EXPECT_EQ(linearOf("(p0 * x0 + p1) / (1 + p2 * x0)"), (Indices{0, 1}));
  EXPECT_EQ(linearOf("(p0 + p1 * x0 + p2 * x0^2) / (1 + p3 * x0 + p4 * x0^2)"), (Indices{0, 1, 2}));
  EXPECT_EQ(linearOf("p0 * exp(-p1 * x0) + p2 * exp(-p3 * x0)"), (Indices{0, 2}));
  EXPECT_EQ(linearOf("fma(p0, sin(x0), -p1) / x1"), (Indices{0, 1}));
  EXPECT_EQ(linearOf("sin(p0) * x0"), (Indices{}));
  EXPECT_EQ(linearOf("exp(p0 * x0) / (p1 + p2 * x0)"), (Indices{}));
  EXPECT_EQ(linearOf("x0 / p0"), (Indices{}));
}

// Either of two factors could be linear; together they are not.
TEST_P(LinearParametersModes, AreJointlyLinear) {
  EXPECT_EQ(linearOf("p0 * p1 * x0"), (Indices{0}));
  EXPECT_EQ(linearOf("(p0 + x0) * (p1 + x1)"), (Indices{0}));
  EXPECT_EQ(linearOf("p1 * p0 * x0 + p2 * x1"), (Indices{0, 2}));
  EXPECT_EQ(linearOf("p0 * x0 + p1 * (p0 + p2)"), (Indices{0, 2}));
}

TEST_P(LinearParametersModes, DoNotIncludeStepsAndWhatHasNoEffect) {
  EXPECT_EQ(linearOf("floor(p0) * p1 + x0"), (Indices{1}));
  EXPECT_EQ(linearOf("if(x0 - p0, p1, p2 * x0)"), (Indices{1, 2}));
  EXPECT_EQ(linearOf("abs(p0) * x0"), (Indices{}));
  EXPECT_EQ(linearOf("max(p0 * x0, p1)"), (Indices{}));
  EXPECT_EQ(linearOf("p0 + x0 + 0 * p2"), (Indices{0}));
  EXPECT_EQ(linearOf("x0 + 1"), (Indices{}));
}

// The definition, in numbers: the second differences by all pairs vanish.
TEST_P(LinearParametersModes, OfRandomExpressionsAreAffine) {
  const auto [precision, math] = GetParam();
  ExpressionGenerator generator = expressionsOfAllOperators(95);
  Random random(96);
  const std::array<double, 8> variables{0.75, -1.25, 0.5, 1.5, -0.25, 2, 1, -2};
  std::size_t pairs = 0;
  for (int i = 0; i < 5'000; ++i) {
    const Expression expression = generator.next();
    const Dag dag = differentiated(expression, math, precision);
    std::vector<double> base, moved;
    for (std::uint32_t k = 0; k < expression.parameterCount(); ++k) base.push_back(random.between(-2.0, 2.0));
    moved = base;
    const Indices linear = found(dag);
    for (const std::uint32_t k : linear) moved[k] = random.between(-2.0, 2.0);
    const std::vector<double> before = evaluate<double>(dag, variables, base);
    const std::vector<double> after = evaluate<double>(dag, variables, moved);
    for (const std::uint32_t k : linear) {
      if (!std::isfinite(before[1 + k])) continue;
      ASSERT_EQ(before[1 + k], after[1 + k]) << print(expression, Language::kInfix) << " by " << k;
      ++pairs;
    }
  }
  EXPECT_GT(pairs, 150U);
}

INSTANTIATE_TEST_SUITE_P(, LinearParametersModes,
                         testing::Combine(testing::Values(Precision::kF32, Precision::kF64),
                                          testing::Values(Math::kStrict, Math::kPrecise, Math::kFast)));

// More than fit into a word.
TEST(LinearParameters, OfManyTerms) {
  std::vector<Token> tokens{Token::variable(0)};
  for (std::uint32_t i = 0; i < 300; ++i) {
    tokens.insert(tokens.end(), {Token::parameter(i), Token::variable(i % 8), Token::operation(Op::kMul)});
    if (i % 3 == 0) tokens.push_back(Token::operation(Op::kSin));
    tokens.push_back(Token::operation(Op::kAdd));
  }
  const Expression expression = Expression::create(std::move(tokens)).value();
  Indices expected;
  for (std::uint32_t i = 0; i < 300; ++i) {
    if (i % 3 != 0) expected.push_back(i);
  }
  EXPECT_EQ(found(differentiated(expression, Math::kPrecise, Precision::kF64)), expected);
}

TEST(LinearParameters, KeepNothingOfTheLastExpression) {
  LinearParameters finder;
  const Dag large = differentiated(infix("p0 * exp(p1 * x0) + p2 * sin(x0 + p3)"), Math::kStrict, Precision::kF64);
  const Dag small = differentiated(infix("p1 * x0 + sin(p0)"), Math::kStrict, Precision::kF64);
  for (int repeat = 0; repeat < 2; ++repeat) {
    const auto of_large = finder.find(large, large.roots().subspan(1));
    EXPECT_EQ(Indices(of_large.begin(), of_large.end()), (Indices{0, 2}));
    const auto of_small = finder.find(small, small.roots().subspan(1));
    EXPECT_EQ(Indices(of_small.begin(), of_small.end()), (Indices{1}));
  }
}

}  // namespace
}  // namespace srjit
