#include "passes/gradient/linear_parameters.h"

#include <array>
#include <cmath>
#include <set>

#include <gmock/gmock.h>

#include "passes/expression_optimizer.h"
#include "passes/gradient/deriver.h"
#include "passes/members.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

using Indices = std::vector<std::uint32_t>;

/// An expression, and its graph as an engine of this mode has it.
class Optimized {
 public:
  Optimized(const Expression& expression, Math math, Precision precision)
      : tokens_({&expression, 1}),
        parameters_(expression.parameterCount()),
        optimizer_(precision, math),
        deriver_(precision, math),
        derived_(precision) {
    optimizer_.run(tokens_[0], 0);
  }

  Indices linear(LinearParameters& finder) {
    const std::span<const std::uint32_t> all = finder.find(tokens_[0]);
    return {all.begin(), all.end()};
  }
  Indices linear() {
    LinearParameters finder;
    return linear(finder);
  }
  /// The definition, with the derivatives as they are after all rules, which may have cancelled terms.
  Indices linearOfDerivatives() {
    const Dag& dag = derived();
    std::vector<std::set<std::uint32_t>> contained;
    for (std::uint32_t i = 0; i < parameters_; ++i) {
      RootMembers members;
      const NodeId derivative = dag.roots()[1 + i];
      members.collect(dag, {&derivative, 1});
      contained.emplace_back();
      for (const NodeId id : members.members()) {
        const Node& node = dag.node(id);
        if (node.kind == Token::Kind::kParameter && !dag.parameters()[node.index].isLiteral()) {
          contained.back().insert(dag.parameters()[node.index].index);
        }
      }
    }
    Indices found;
    for (std::uint32_t i = 0; i < parameters_; ++i) {
      const Node& derivative = dag.node(dag.roots()[1 + i]);
      const bool is_zero = derivative.kind == Token::Kind::kConstant && derivative.value == 0;
      bool joins = !is_zero && !contained[i].contains(i);
      for (const std::uint32_t other : found) {
        joins = joins && !contained[i].contains(other) && !contained[other].contains(i);
      }
      if (joins) found.push_back(i);
    }
    return found;
  }
  /// f and its derivatives.
  const Dag& derived() {
    const ExpressionGraph graph = optimizer_.graph();
    deriver_.differentiate(graph.dag, graph.root(), parameters_, derived_);
    return derived_;
  }

 private:
  Population tokens_;
  std::uint32_t parameters_;
  ExpressionOptimizer optimizer_;
  Deriver deriver_;
  Dag derived_;
};

class LinearParametersModes : public testing::TestWithParam<std::tuple<Precision, Math>> {
 protected:
  static Indices linearOf(std::string_view text) {
    const auto [precision, math] = GetParam();
    return Optimized(infix(text), math, precision).linear();
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
  EXPECT_EQ(linearOf("p0 + x0 + floor(p2)"), (Indices{0}));
  EXPECT_EQ(linearOf("p0 + x0 + 0 * p2"), (Indices{0, 2}));
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
    Optimized graph(expression, math, precision);
    const Indices linear = graph.linear();
    const Dag& dag = graph.derived();
    std::vector<double> base, moved;
    for (std::uint32_t k = 0; k < expression.parameterCount(); ++k) base.push_back(random.between(-2.0, 2.0));
    moved = base;
    for (const std::uint32_t k : linear) moved[k] = random.between(-2.0, 2.0);
    const std::vector<double> before = evaluate<double>(dag, variables, base);
    const std::vector<double> after = evaluate<double>(dag, variables, moved);
    for (const std::uint32_t k : linear) {
      if (!std::isfinite(before[1 + k])) continue;
      ASSERT_EQ(before[1 + k], after[1 + k]) << textOf(expression) << " by " << k;
      ++pairs;
    }
  }
  EXPECT_GT(pairs, 150U);
}

INSTANTIATE_TEST_SUITE_P(, LinearParametersModes,
                         testing::Combine(testing::Values(Precision::kF32, Precision::kF64),
                                          testing::Values(Math::kStrict, Math::kPrecise, Math::kFast)));

// Rules may cancel what a derivative contains, which is seldom.
TEST_P(LinearParametersModes, OfNearlyAllRandomExpressionsAreThoseOfTheirDerivatives) {
  const auto [precision, math] = GetParam();
  ExpressionGenerator generator = expressionsOfAllOperators(97);
  std::size_t others = 0, found = 0;
  for (int i = 0; i < 3'000; ++i) {
    const Expression expression = generator.next();
    Optimized graph(expression, math, precision);
    const Indices linear = graph.linear();
    found += linear.size();
    others += static_cast<std::size_t>(linear != graph.linearOfDerivatives());
  }
  EXPECT_LT(others, 10U);
  EXPECT_GT(found, 100U);
}

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
  EXPECT_EQ(Optimized(expression, Math::kPrecise, Precision::kF64).linear(), expected);
}

TEST(LinearParameters, KeepNothingOfTheLastExpression) {
  LinearParameters finder;
  Optimized large(infix("p0 * exp(p1 * x0) + p2 * sin(x0 + p3)"), Math::kStrict, Precision::kF64);
  Optimized small(infix("p1 * x0 + sin(p0)"), Math::kStrict, Precision::kF64);
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_EQ(large.linear(finder), (Indices{0, 2}));
    EXPECT_EQ(small.linear(finder), (Indices{1}));
  }
}

}  // namespace
}  // namespace srjit
