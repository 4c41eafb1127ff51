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

/// The graph of an expression as an engine of this mode has it.
class Optimized {
 public:
  Optimized(const Expression& expression, Math math, Precision precision)
      : parameters_(expression.parameterCount()),
        optimizer_(precision, math),
        deriver_(precision, math),
        derived_(precision) {
    optimizer_.run(Population({&expression, 1})[0], 0);
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
  std::uint32_t parameters_;
  ExpressionOptimizer optimizer_;
  Deriver deriver_;
  Dag derived_;
};

Indices linearOf(const Expression& expression) {
  LinearParameters finder;
  const std::span<const std::uint32_t> all = finder.find(Population({&expression, 1})[0]);
  return {all.begin(), all.end()};
}
Indices linearOf(std::string_view text) { return linearOf(infix(text)); }

TEST(LinearParameters, AreThoseThatNoDerivativeOfThemContains) {
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
TEST(LinearParameters, AreJointlyLinear) {
  EXPECT_EQ(linearOf("p0 * p1 * x0"), (Indices{0}));
  EXPECT_EQ(linearOf("(p0 + x0) * (p1 + x1)"), (Indices{0}));
  EXPECT_EQ(linearOf("p1 * p0 * x0 + p2 * x1"), (Indices{0, 2}));
  EXPECT_EQ(linearOf("p0 * x0 + p1 * (p0 + p2)"), (Indices{0, 2}));
}

TEST(LinearParameters, DoNotIncludeStepsAndWhatHasNoEffect) {
  EXPECT_EQ(linearOf("floor(p0) * p1 + x0"), (Indices{1}));
  EXPECT_EQ(linearOf("if(x0 - p0, p1, p2 * x0)"), (Indices{1, 2}));
  EXPECT_EQ(linearOf("abs(p0) * x0"), (Indices{}));
  EXPECT_EQ(linearOf("max(p0 * x0, p1)"), (Indices{}));
  EXPECT_EQ(linearOf("p0 + x0 + floor(p2)"), (Indices{0}));
  EXPECT_EQ(linearOf("p0 + x0 + 0 * p2"), (Indices{0, 2}));
  EXPECT_EQ(linearOf("x0 + 1"), (Indices{}));
}

class LinearParametersModes : public testing::TestWithParam<std::tuple<Precision, Math>> {};

// The definition, in numbers: the derivatives by members stay when members move.
TEST_P(LinearParametersModes, OfRandomExpressionsAreAffine) {
  const auto [precision, math] = GetParam();
  ExpressionGenerator generator = expressionsOfAllOperators(95);
  Random random(96);
  const std::array<double, 8> variables{0.75, -1.25, 0.5, 1.5, -0.25, 2, 1, -2};
  std::size_t pairs = 0;
  for (int i = 0; i < 5'000; ++i) {
    const Expression expression = generator.next();
    Optimized graph(expression, math, precision);
    const Indices linear = linearOf(expression);
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
    const Indices linear = linearOf(expression);
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
  EXPECT_EQ(linearOf(expression), expected);
}

// Memory is that of those which occur.
TEST(LinearParameters, OfDistantNumbers) {
  const std::uint32_t last = Expression::kMaxIndex;
  EXPECT_EQ(linearOf(Expression::create({Token::parameter(last)}).value()), (Indices{last}));
  EXPECT_EQ(linearOf("p9 * exp(p70000 * x0) + p500000"), (Indices{9, 500000}));
}

TEST(LinearParameters, KeepNothingOfTheLastExpression) {
  LinearParameters finder;
  const Expression large = infix("p0 * exp(p1 * x0) + p2 * sin(x0 + p3)"), small = infix("p1 * x0 + sin(p0)");
  const auto linear = [&](const Expression& expression) {
    const std::span<const std::uint32_t> all = finder.find(Population({&expression, 1})[0]);
    return Indices(all.begin(), all.end());
  };
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_EQ(linear(large), (Indices{0, 2}));
    EXPECT_EQ(linear(small), (Indices{1}));
  }
}

}  // namespace
}  // namespace srjit
