// Values after passes: equal bits for exact passes, error bounds for bounded ones, the same in every batch.
#include <algorithm>
#include <array>
#include <utility>

#include <gtest/gtest.h>

#include "ir/reference.h"
#include "passes/rules/tables.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

constexpr Math kModes[] = {Math::kStrict, Math::kPrecise, Math::kFast};

/// A row of data: 3 variables and 2 parameters.
template <class T>
struct Row {
  std::vector<T> variables, parameters;

  Row(std::vector<T> x, std::vector<T> p) : variables(std::move(x)), parameters(std::move(p)) {}
  Row(Random& random, Spread spread, Precision precision) {
    for (int i = 0; i < 3; ++i) variables.push_back(static_cast<T>(randomValue(random, spread, precision)));
    for (int i = 0; i < 2; ++i) parameters.push_back(static_cast<T>(randomValue(random, spread, precision)));
  }

  std::vector<T> values(const Dag& dag) const { return evaluate<T>(dag, variables, parameters); }

  Bounded bounded(const Expression& expression, Precision precision) const {
    const std::vector<double> x(variables.begin(), variables.end()), p(parameters.begin(), parameters.end());
    return evaluateBounded(expression, x, p, {precision, Math::kPrecise});
  }
};

template <class T>
void keepsBits(const Pass& pass, Math math, Precision precision) {
  ExpressionGenerator expressions = expressionsOfAllOperators(11);
  Random random(12);
  for (int i = 0; i < 300; ++i) {
    const std::vector<Expression> batch = expressions.batch(3);
    const Dag before = Dag::fromExpressions(batch, precision);
    const Dag result = pass.run(before, {math});
    for (int k = 0; k < 8; ++k) {
      const Row<T> row(random, Spread::kSpecial, precision);
      const auto a = row.values(before), b = row.values(result);
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t e = 0; e < a.size(); ++e) {
        ASSERT_TRUE(sameBits(a[e], b[e])) << pass.name << ": " << textOf(before, e) << " became " << textOf(result, e)
                                          << " and " << a[e] << " became " << b[e];
      }
    }
  }
}

TEST(Passes, ExactPassesKeepBits) {
  const Pipeline pipeline = Pipeline::standard(Math::kFast);  // it has all of passes.def
  for (const Pass& pass : pipeline.passes()) {
    for (const Math math : kModes) {
      const bool keeps = pass.exactness == Exactness::kExact || (math == Math::kStrict && pass.name == "simplify");
      if (!keeps) continue;
      keepsBits<float>(pass, math, Precision::kF32);
      keepsBits<double>(pass, math, Precision::kF64);
    }
  }
}

/// Checks values after `passes` against the error bound of the expression as written.
template <class T>
void staysWithinTheBound(std::string_view passes, Precision precision) {
  ExpressionGenerator expressions = expressionsOfAllOperators(21, 20);
  Random random(22);
  int promised = 0;
  for (int i = 0; i < 1500; ++i) {
    const Expression expression = expressions.next();
    const Dag result = ran(graphOf(expression, precision), passes);
    for (int k = 0; k < 4; ++k) {
      const Row<T> row(random, Spread::kTame, precision);
      const Bounded expected = row.bounded(expression, precision);
      if (!std::isfinite(expected.value) || !std::isfinite(expected.error)) continue;
      ++promised;
      ASSERT_LE(std::fabs(double{row.values(result)[0]} - expected.value), expected.error)
          << passes << ": " << textOf(expression) << " became " << textOf(result);
    }
  }
  EXPECT_GT(promised, 1000);
}

TEST(Passes, BoundedPassesStayWithinTheBound) {
  for (const std::string_view passes : {"simplify", "fma", "standard"}) {
    staysWithinTheBound<float>(passes, Precision::kF32);
    staysWithinTheBound<double>(passes, Precision::kF64);
  }
}

using Values = std::vector<double>;

/// The results of an operator over all combinations of its operands' values, without duplicates; a zero as both zeros.
Values resultsOf(Op op, const std::array<Values, kMaxArity>& operands) {
  Values results;
  for (const double x : operands[0]) {
    for (const double y : operands[1]) {
      for (const double z : operands[2]) {
        const double result = applyRow<double>(op, x, y, z);
        for (const double either : {result, result == 0 ? -result : result}) {
          if (std::ranges::none_of(results, [&](double known) { return sameBits(known, either); })) {
            results.push_back(either);
          }
        }
      }
    }
  }
  return results;
}

/// Whether the finite value of `expression` in `row` depends on the signs of the zeros that operators give, which fast
/// rules do not keep (docs/accuracy.md).
bool dependsOnSignsOfZeros(const Expression& expression, const Row<double>& row) {
  constexpr std::size_t kMost = 16;
  std::vector<Values> stack;
  for (const Token& token : expression.tokens()) {
    if (token.kind != Token::Kind::kOp) {
      stack.push_back({token.kind == Token::Kind::kVariable    ? row.variables[token.index]
                       : token.kind == Token::Kind::kParameter ? row.parameters[token.index]
                                                               : token.value});
      continue;
    }
    std::array<Values, kMaxArity> operands{Values{0}, Values{0}, Values{0}};
    for (auto k = static_cast<std::size_t>(token.arity()); k-- > 0; stack.pop_back()) operands[k] = stack.back();
    stack.push_back(resultsOf(token.op, operands));
    if (stack.back().size() > kMost) return true;
  }
  const Values& values = stack.back();
  return std::ranges::any_of(values, [&](double value) { return value != values[0]; });
}

TEST(Passes, FastRulesHoldInRealArithmetic) {
  ExpressionGenerator expressions = expressionsOfAllOperators(31, 20);
  Random random(32);
  int compared = 0, left_out = 0;
  for (int i = 0; i < 3000; ++i) {
    const Expression before = expressions.next();
    // A comparison or a choice turns a NaN into a number, and fast rules may remove NaNs.
    const auto steps = [](const Token& t) { return t.kind == Token::Kind::kOp && infoOf(t.op).has(OpProps::kSteps); };
    if (std::ranges::any_of(before.tokens(), steps)) continue;
    const Dag dag = graphOf(before, Precision::kF64);
    const Expression after = simplified(dag, Math::kFast).toExpression(0).value();
    for (int k = 0; k < 4; ++k) {
      const Row<double> row(random, Spread::kTame, Precision::kF64);
      const Bounded a = row.bounded(before, Precision::kF64), b = row.bounded(after, Precision::kF64);
      if (!std::isfinite(a.value) || !std::isfinite(a.error + b.error)) continue;
      if (dependsOnSignsOfZeros(before, row)) {
        ++left_out;
        continue;
      }
      ++compared;
      ASSERT_NEAR(a.value, b.value, 4 * (a.error + b.error) + 1e-12 * std::fabs(a.value))
          << textOf(before) << " became " << textOf(after);
    }
  }
  EXPECT_GT(compared, 2000);
  EXPECT_LT(left_out, compared / 100) << "a comparison that is left out tests nothing";
}

TEST(Passes, FastRulesMayChangeTheSignOfAZeroAndWhatDependsOnIt) {
  const Expression expression = infix("cos(log10(max(cube(cos(x1)) * x0, x2 / (0 * x0))))");
  const Dag dag = graphOf(expression, Precision::kF32);
  const Row<float> row({-2, 3, 3}, {});
  const auto valueAfter = [&](Math math) { return row.values(Pipeline::standard(math).run(dag, {math}))[0]; };
  const double written = evaluateReference(expression, std::array{-2.0, 3.0, 3.0}, {});
  EXPECT_NEAR(written, 0.9588, 1e-4) << "3 / -0 is below the other operand of max";
  EXPECT_NEAR(double{valueAfter(Math::kStrict)}, written, 1e-6);
  EXPECT_NEAR(double{valueAfter(Math::kPrecise)}, written, 1e-6);
  EXPECT_TRUE(std::isnan(valueAfter(Math::kFast))) << "3 / 0 is above it";
  EXPECT_TRUE(dependsOnSignsOfZeros(expression, {{-2, 3, 3}, {}}));
}

TEST(Passes, DependenceOnTheSignOfAZeroIsFound) {
  const auto depends = [](std::string_view text, double x) { return dependsOnSignsOfZeros(infix(text), {{x}, {2}}); };
  EXPECT_TRUE(depends("atan(p0 / (0 * x0))", -2));
  EXPECT_TRUE(depends("max(x0, p0 / (x0 + 0))", 0));
  EXPECT_FALSE(depends("max(x0, p0 + 0 * x0)", -2));
  EXPECT_FALSE(depends("inv(p0 / (0 * x0))", -2)) << "a zero of either sign";
  EXPECT_FALSE(depends("atan(p0 / x0)", 0)) << "the zero of a column keeps its sign";
}

TEST(Passes, SimplificationReachesANormalForm) {
  ExpressionGenerator expressions = expressionsOfAllOperators(7);
  for (const Math mode : kModes) {
    for (int i = 0; i < 300; ++i) {
      const Dag once = simplified(Dag::fromExpressions(expressions.batch(2), Precision::kF32), mode);
      ASSERT_TRUE(once == simplified(once, mode)) << nameOf(mode) << '\n' << printDag(once);
    }
  }
}

}  // namespace
}  // namespace srjit
