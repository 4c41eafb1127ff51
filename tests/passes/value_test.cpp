// Invariants of passes: exact passes preserve bits, bounded ones the error bound, and results do not depend on the
// batch.
#include <algorithm>

#include <gtest/gtest.h>

#include "ir/reference.h"
#include "passes/simplify.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

constexpr Math kModes[] = {Math::kStrict, Math::kPrecise, Math::kFast};

/// A row of data: 3 variables and 2 parameters.
template <class T>
struct Row {
  std::vector<T> variables, parameters;

  Row(Random& random, Spread spread, Precision precision) {
    for (int i = 0; i < 3; ++i) variables.push_back(static_cast<T>(randomValue(random, spread, precision)));
    for (int i = 0; i < 2; ++i) parameters.push_back(static_cast<T>(randomValue(random, spread, precision)));
  }

  std::vector<T> values(const Dag& dag) const { return evaluate<T>(dag, variables, parameters); }

  Bounded bounded(const Expression& expression, Precision precision) const {
    const std::vector<double> x(variables.begin(), variables.end()), p(parameters.begin(), parameters.end());
    return evaluateBounded(expression, x, p, {precision, Math::kPrecise, true});
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
        ASSERT_TRUE(sameValue(a[e], b[e])) << pass.name << ": " << textOf(before, e) << " became " << textOf(result, e)
                                           << " and " << a[e] << " became " << b[e];
      }
    }
  }
}

TEST(Passes, ExactPassesPreserveBits) {
  const Pipeline pipeline = Pipeline::standard(Math::kFast);  // it contains all of passes.def
  for (const Pass& pass : pipeline.passes()) {
    if (pass.exactness != Exactness::kExact) continue;
    for (const Math math : kModes) {
      keepsBits<float>(pass, math, Precision::kF32);
      keepsBits<double>(pass, math, Precision::kF64);
    }
  }
}

/// Checks each pass alone, and all together, against the error bound of the expression as written.
template <class T>
void staysWithinTheBound(std::string_view passes, Precision precision) {
  ExpressionGenerator expressions = expressionsOfAllOperators(21, 20);
  Random random(22);
  int promised = 0;
  for (int i = 0; i < 1500; ++i) {
    const Expression expression = expressions.next();
    const Dag result = ran(Dag::fromExpressions({&expression, 1}, precision), passes);
    for (int k = 0; k < 4; ++k) {
      const Row<T> row(random, Spread::kTame, precision);
      const Bounded expected = row.bounded(expression, precision);
      if (!std::isfinite(expected.value) || !std::isfinite(expected.error)) continue;
      ++promised;
      ASSERT_LE(std::fabs(double{row.values(result)[0]} - expected.value), expected.error)
          << passes << ": " << print(expression, Language::kInfix) << " became " << textOf(result);
    }
  }
  EXPECT_GT(promised, 1000);
}

TEST(Passes, BoundedPassesStayWithinTheErrorBound) {
  for (const std::string_view passes : {"fold-functions", "simplify-precise", "fma", "standard"}) {
    staysWithinTheBound<float>(passes, Precision::kF32);
    staysWithinTheBound<double>(passes, Precision::kF64);
  }
}

TEST(Passes, FastRulesHoldInRealArithmetic) {
  ExpressionGenerator expressions = expressionsOfAllOperators(31, 20);
  Random random(32);
  int compared = 0;
  for (int i = 0; i < 3000; ++i) {
    const Expression before = expressions.next();
    // Skipped: a comparison or selection turns a NaN into a number, and fast rules may remove NaNs.
    const auto steps = [](const Token& t) { return t.kind == Token::Kind::kOp && (infoOf(t.op).props & kSteps) != 0; };
    if (std::ranges::any_of(before.tokens(), steps)) continue;
    const Dag dag = Dag::fromExpressions({&before, 1}, Precision::kF64);
    const Expression after = simplify(dag, RuleClass::kFast, Math::kFast).toExpression(0).value();
    for (int k = 0; k < 4; ++k) {
      const Row<double> row(random, Spread::kTame, Precision::kF64);
      const Bounded a = row.bounded(before, Precision::kF64), b = row.bounded(after, Precision::kF64);
      if (!std::isfinite(a.value) || !std::isfinite(a.error + b.error)) continue;
      ++compared;
      ASSERT_NEAR(a.value, b.value, 4 * (a.error + b.error) + 1e-12 * std::fabs(a.value))
          << print(before, Language::kInfix) << " became " << print(after, Language::kInfix);
    }
  }
  EXPECT_GT(compared, 2000);
}

TEST(Passes, ResultsDoNotDependOnTheBatch) {
  const std::vector<Expression> population = expressionsOfAllOperators(5).batch(400);
  Random random(6);
  for (const Math math : kModes) {
    const Pipeline pipeline = Pipeline::standard(math);
    std::vector<Expression> alone;
    for (const Expression& expression : population) {
      const Dag dag = Dag::fromExpressions({&expression, 1}, Precision::kF32);
      alone.push_back(pipeline.run(dag, {math}).toExpression(0).value());
    }
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<std::size_t> chosen;
      for (int i = 0; i < 150; ++i) chosen.push_back(static_cast<std::size_t>(random.below(population.size())));
      std::vector<Expression> batch;
      for (const std::size_t i : chosen) batch.push_back(population[i]);
      const Dag dag = pipeline.run(Dag::fromExpressions(batch, Precision::kF32), {math});
      for (std::size_t e = 0; e < chosen.size(); ++e) {
        ASSERT_EQ(dag.toExpression(e).value(), alone[chosen[e]])
            << print(batch[e], Language::kInfix) << " alone is " << print(alone[chosen[e]], Language::kInfix);
      }
    }
  }
}

TEST(Passes, SimplificationReachesANormalForm) {
  ExpressionGenerator expressions = expressionsOfAllOperators(7);
  for (const std::string_view name : {"simplify", "simplify-precise", "simplify-fast"}) {
    for (int i = 0; i < 300; ++i) {
      const std::vector<Expression> batch = expressions.batch(2);
      const Dag once = ran(Dag::fromExpressions(batch, Precision::kF32), name, Math::kFast);
      ASSERT_TRUE(once == ran(once, name, Math::kFast)) << name << '\n' << printDag(once);
    }
  }
}

}  // namespace
}  // namespace srjit
