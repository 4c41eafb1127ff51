// Derivatives as graphs, against dual numbers.
#include <array>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "ir/rows.h"
#include "passes/gradient/deriver.h"
#include "passes/pass.h"
#include "tests/generators/dual.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

constexpr Derivation kJacobian{.quantity = Quantity::kJacobian, .columns = 3};

Dag derived(const Expression& expression, const Derivation& derivation, Math math = Math::kStrict,
            Precision precision = Precision::kF64, bool simplify = true) {
  BatchOptimizer batch(precision, math, derivation, simplify);
  batch.add(Population({&expression, 1})[0]);
  return batch.take();
}

std::string derivativeText(std::string_view text, Math math = Math::kPrecise) {
  return textOf(derived(infix(text), {.columns = 1}, math));
}

TEST(Gradient, OfSimpleExpressions) {
  EXPECT_EQ(derivativeText("p0 * x0 + 2"), "x0");
  EXPECT_EQ(derivativeText("x0 - p0"), "-1");
  EXPECT_EQ(derivativeText("exp(p0 * x0)"), "x0 * exp(x0 * p0)");
  EXPECT_EQ(derivativeText("square(p0)"), "p0 * 2");
  EXPECT_EQ(derivativeText("x0 / p0"), "-(x0 / p0) / p0");
  EXPECT_EQ(derivativeText("floor(p0) + x0"), "0");
  EXPECT_EQ(derivativeText("fma(p0, x0, p0 * x0)"), "x0 * 2");
  EXPECT_EQ(derivativeText("if(x0, p0, 3)"), "if(x0, 1, 0)");
}

// Operators that are not smooth, copy a sign, or have comparisons in their derivative.
TEST(Gradient, OfOperatorsWithCases) {
  const double tiny = 1e-10;
  for (const Op op : allOperators()) {
    const auto arity = static_cast<std::size_t>(arityOf(op));
    std::vector<Token> tokens;
    for (std::uint32_t k = 0; k < arity; ++k) tokens.push_back(Token::parameter(k));
    tokens.push_back(Token::operation(op));
    const Expression expression = Expression::create(std::move(tokens)).value();
    const Dag graph = derived(expression, kJacobian);
    ASSERT_EQ(graph.roots().size(), arity);
    for (const double x : {-2.5, -1.0, -tiny, -0.0, 0.0, tiny, 0.25, 1.0, 3.0}) {
      for (const double y : {-1.5, -tiny, -0.0, 0.0, tiny, 0.5, 2.0}) {
        const std::array parameters{x, y, 0.75};
        const std::vector<double> got = evaluate<double>(graph, {}, parameters);
        const double value = applyRow<double>(op, x, y, 0.75);
        for (std::size_t k = 0; k < arity; ++k) {
          const double expected = derivativeRow<double>(op, static_cast<int>(k), x, y, 0.75, value);
          if (std::isnan(expected)) {
            EXPECT_TRUE(std::isnan(got[k])) << infoOf(op).name << " by " << k << " at " << x << ' ' << y;
          } else {
            EXPECT_EQ(got[k], expected) << infoOf(op).name << " by " << k << " at " << x << ' ' << y;
          }
        }
      }
    }
  }
}

/// Compares all derivatives of random expressions with dual numbers; how many were finite.
std::size_t expectDerivatives(DerivativesBy by, int expressions, Math math = Math::kStrict, bool simplify = true) {
  Derivation derivation = kJacobian;
  derivation.by = by;
  // Without infinities and the like, since the two do not overflow alike.
  GeneratorOptions options = expressionsOfAllOperators(91).options();
  options.special_probability = 0;
  ExpressionGenerator generator(options);
  Random random(92);
  // A multiply-add rounds less, which differences of nearly equal values and steep functions magnify.
  const double tolerance = math == Math::kStrict ? 1e-12 : 1e-6;
  std::size_t finite = 0, overflows = 0;
  for (int i = 0; i < expressions; ++i) {
    const Expression expression = generator.next();
    const Dag graph = derived(expression, derivation, math, Precision::kF64, simplify);
    const bool by_parameters = by == DerivativesBy::kParameters;
    const Token::Kind kind = by_parameters ? Token::Kind::kParameter : Token::Kind::kVariable;
    const std::size_t count = by_parameters ? expression.parameterCount() : kJacobian.columns;
    EXPECT_EQ(graph.roots().size(), count);
    std::vector<double> variables, parameters;
    for (int k = 0; k < 3; ++k) variables.push_back(random.between(-2.0, 2.0));
    for (int k = 0; k < 2; ++k) parameters.push_back(random.between(-2.0, 2.0));
    const std::vector<double> got = evaluate<double>(graph, variables, parameters);
    for (std::size_t k = 0; k < count; ++k) {
      const Dual expected = dualOf(expression, variables, parameters, kind, k);
      const bool is_moderate = expected.magnitude == 0 || (expected.magnitude > 1e-100 && expected.magnitude < 1e100);
      if (!is_moderate || !std::isfinite(expected.value) || !std::isfinite(expected.derivative)) continue;
      // For instance tanh of a square beyond the largest number.
      if (!std::isfinite(got[k])) {
        ++overflows;
        continue;
      }
      finite += expected.magnitude > 0 ? 1 : 0;
      EXPECT_NEAR(got[k], expected.derivative, tolerance * expected.magnitude) << textOf(expression);
    }
  }
  EXPECT_LT(overflows, 3U);
  return finite;
}

TEST(Gradient, AgreesWithDualNumbersByParameters) {
  EXPECT_GT(expectDerivatives(DerivativesBy::kParameters, 24'000), 4'000U);
}
TEST(Gradient, AgreesWithDualNumbersByVariables) {
  EXPECT_GT(expectDerivatives(DerivativesBy::kVariables, 10'000), 5'000U);
}

// Trees have multiply-adds in precise.
TEST(Gradient, OfTreesAgreesWithDualNumbers) {
  EXPECT_GT(expectDerivatives(DerivativesBy::kParameters, 12'000, Math::kStrict, false), 2'000U);
  EXPECT_GT(expectDerivatives(DerivativesBy::kParameters, 12'000, Math::kPrecise, false), 2'000U);
  EXPECT_GT(expectDerivatives(DerivativesBy::kVariables, 5'000, Math::kPrecise, false), 2'500U);
}

class GradientModes : public testing::TestWithParam<std::tuple<Precision, Math>> {};

// f keeps the graph that it has without derivatives, and so its bits.
TEST_P(GradientModes, ThePassKeepsTheExpressionsAndGivesTheBatchsDerivatives) {
  const auto [precision, math] = GetParam();
  ExpressionGenerator generator = expressionsOfAllOperators(93);
  const Pipeline standard = Pipeline::standard(math), gradient = standard.withDerivatives();
  for (int i = 0; i < 3'000; ++i) {
    const Expression expression = generator.next();
    const Dag input = graphOf(expression, precision);
    const Dag printed = gradient.run(input, {math});
    const Dag alone = standard.run(input, {math});
    const Dag jacobian = derived(expression, kJacobian, math, precision);
    ASSERT_EQ(printed.roots().size(), 1 + expression.parameterCount());
    ASSERT_EQ(textOf(printed), textOf(alone));
    for (std::size_t k = 0; k < jacobian.roots().size(); ++k) {
      ASSERT_EQ(textOf(printed, 1 + k), textOf(jacobian, k)) << textOf(expression);
    }
  }
}

TEST_P(GradientModes, DoNotDependOnTheBatch) {
  const auto [precision, math] = GetParam();
  const std::vector<Expression> batch = expressionsOfAllOperators(94).batch(300);
  const Derivation derivation{.quantity = Quantity::kNormalEquations, .columns = 3, .weighted = true};
  const Population population(batch);
  BatchOptimizer together(precision, math, derivation);
  for (std::size_t e = 0; e < population.size(); ++e) together.add(population[e]);
  const Dag all = together.take();
  std::size_t root = 0;
  for (const Expression& expression : batch) {
    const Dag alone = derived(expression, derivation, math, precision);
    for (std::size_t k = 0; k < alone.roots().size(); ++k, ++root) {
      ASSERT_EQ(textOf(all, root), textOf(alone, k)) << textOf(expression);
    }
  }
  EXPECT_EQ(root, all.roots().size());
}

INSTANTIATE_TEST_SUITE_P(, GradientModes,
                         testing::Combine(testing::Values(Precision::kF32, Precision::kF64),
                                          testing::Values(Math::kStrict, Math::kPrecise, Math::kFast)));

// O(n) nodes for all parameters: a chain in which each step has a parameter of its own.
TEST(Gradient, TakesNodesInProportionToTheExpression) {
  const auto nodes = [](std::uint32_t steps) {
    std::vector<Token> tokens{Token::variable(0)};
    for (std::uint32_t i = 0; i < steps; ++i) {
      tokens.insert(tokens.end(), {Token::parameter(i), Token::operation(Op::kMul), Token::operation(Op::kSin)});
    }
    return derived(Expression::create(std::move(tokens)).value(), {.columns = 1}).size();
  };
  EXPECT_LT(nodes(2'000), 2 * nodes(1'000) + 10);
  EXPECT_LT(nodes(20'000), 10U * 20'000U);  // and no recursion
}

TEST(Gradient, OfALossIsTheSlopeTimesTheDerivative) {
  const Expression f = infix("p0 * x0 + p1");
  const std::array row{2.0, 7.0, 0.5};  // x0, the target, the weight
  const std::array parameters{1.5, 1.0};
  const Dag graph = derived(
      f, {.quantity = Quantity::kGradient, .columns = 1, .loss = {.term = LossTerm::kSquared}, .weighted = true});
  EXPECT_EQ(evaluate<double>(graph, row, parameters), (std::vector{0.5 * 9, 0.5 * -6 * 2, 0.5 * -6}));
  const Dag absolute =
      derived(f, {.quantity = Quantity::kGradient, .columns = 1, .loss = {.term = LossTerm::kAbsolute}});
  EXPECT_EQ(evaluate<double>(absolute, row, parameters), (std::vector<double>{3, -2, -1}));
}

TEST(Gradient, NormalEquationsAreProducts) {
  const Expression f = infix("p0 * x0 + p1");
  const std::array row{2.0, 7.0, 0.5};
  const std::array parameters{1.5, 1.0};
  Derivation derivation{.quantity = Quantity::kNormalEquations, .columns = 1};
  EXPECT_EQ(evaluate<double>(derived(f, derivation), row, parameters), (std::vector<double>{9, 6, 3, 4, 2, 1}));
  derivation.weighted = derivation.skips_invalid = true;
  EXPECT_EQ(evaluate<double>(derived(f, derivation), row, parameters),
            (std::vector<double>{4.5, 3, 1.5, 2, 1, 0.5, 1, 0.5}));
}

TEST(Gradient, RowsThatAreNotFiniteAreLeftOut) {
  const Derivation derivation{.quantity = Quantity::kGradient, .columns = 1, .skips_invalid = true};
  const Dag graph = derived(infix("sqrt(p0 * x0)"), derivation);
  const std::array parameters{1.0};
  EXPECT_EQ(evaluate<double>(graph, std::array{4.0, 1.0}, parameters), (std::vector<double>{1, 2, 1}));
  EXPECT_EQ(evaluate<double>(graph, std::array{0.0, 1.0}, parameters), (std::vector<double>{1, 0, 1}))
      << "its slope is infinite, but the prediction decides";
  for (const double x : {-1.0, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(evaluate<double>(graph, std::array{x, 1.0}, parameters), (std::vector<double>{0, 0, 0})) << x;
  }
}

// 0 times infinity by overflow: tanh is 1, and the derivative of the cube infinite.
TEST(Gradient, ADerivativeThatIsNotFiniteCountsAsZero) {
  const Dag graph =
      derived(infix("tanh(cube(p0 * x0))"), {.quantity = Quantity::kGradient, .columns = 1, .skips_invalid = true});
  const std::array parameters{1.0};
  EXPECT_EQ(evaluate<double>(graph, std::array{1e200, 3.0}, parameters), (std::vector<double>{4, 0, 1}));
  const Dag equations =
      derived(infix("exp(p0 * log(x0)) + p1"), {.quantity = Quantity::kNormalEquations, .columns = 1});
  EXPECT_EQ(evaluate<double>(equations, std::array{0.0, 5.0}, std::array{1.0, 2.0}),
            (std::vector<double>{9, 0, 3, 0, 0, 1}));
}

// The slope of a loss that the user wrote: of sqrt|f - y| at f = y.
TEST(Gradient, OfALossWithAnInfiniteSlopeIsFinite) {
  for (const char* const text : {"sqrt(abs(x0 - x1))", "exp(log(abs(x0 - x1)))"}) {
    const Derivation derivation{.quantity = Quantity::kGradient, .columns = 1, .loss = {.custom = infix(text)}};
    EXPECT_EQ(evaluate<double>(derived(infix("p0 * x0"), derivation), std::array{2.0, 4.0}, std::array{2.0}),
              (std::vector<double>{0, 0}))
        << text;
  }
}

TEST(Gradient, OfAnExpressionWhoseVariablesAreMissingIsNoNumber) {
  const Derivation derivation{.quantity = Quantity::kNormalEquations, .columns = 1};
  const Dag graph = derived(infix("p0 * x4"), derivation);
  for (const double root : evaluate<double>(graph, {}, {})) EXPECT_TRUE(std::isnan(root));
  EXPECT_EQ(graph.roots().size(), derivation.roots(1));
}

}  // namespace
}  // namespace srjit
