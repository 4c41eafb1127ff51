// Intervals of expressions against values within their boxes.
#include "ir/numbers/intervals.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "ir/ops.h"
#include "ir/reference.h"
#include "ir/text.h"
#include "tests/generators/data.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

bool has(const Interval& interval, double value) {
  return std::isnan(value) ? interval.may_be_nan : interval.low <= value && value <= interval.high;
}

Interval of(std::string_view text, std::vector<Interval> box) { return evaluateInterval(infix(text), box); }

/// Between two random values: points, narrow and wide ones, and ends that are special.
Interval randomInterval(Random& random) {
  const Spread spread = random.chance(0.3) ? Spread::kSpecial : random.chance(0.5) ? Spread::kWide : Spread::kTame;
  double a = randomValue(random, spread), b = randomValue(random, spread);
  if (random.chance(0.2)) b = a;
  if (random.chance(0.2)) b = a * (1 + 0x1p-40);
  if (random.chance(0.2)) b = a + random.between(0.0, 0.1);
  if (std::isnan(a) || std::isnan(b)) return {kInfinity, -kInfinity, true};
  return {std::min(a, b), std::max(a, b), false};
}

/// An end, or a number within: of the interval, of its logarithms, or a small one.
double randomWithin(const Interval& interval, Random& random) {
  const auto [low, high, nan] = interval;
  if (nan) return std::nan("");
  if (random.chance(0.2)) return random.chance(0.5) ? low : high;
  const double some[] = {low / 2 + high / 2,
                         low + random.between(0.0, 1.0) * (high - low),
                         std::floor(high),
                         std::copysign(random.magnitude(-40, 40), randomValue(random, Spread::kTame)),
                         0.0,
                         -0.0};
  const double value = some[random.below(std::size(some))];
  return std::isnan(value) ? high : std::clamp(value, low, high);
}

/// Checks values at `points` places of a random box.
void checkBox(const Expression& expression, Random& random, int points) {
  std::vector<Interval> box;
  for (std::size_t v = 0; v < std::max<std::size_t>(expression.variableCount(), 1); ++v) {
    box.push_back(randomInterval(random));
  }
  const double parameters[] = {randomValue(random, Spread::kWide), randomValue(random, Spread::kTame)};
  const Interval interval = evaluateInterval(expression, box, parameters);
  for (int i = 0; i < points; ++i) {
    std::vector<double> row;
    for (const Interval& side : box) row.push_back(randomWithin(side, random));
    const double value = evaluateReference(expression, row, parameters);
    std::string place;
    for (std::size_t v = 0; v < row.size(); ++v) {
      place += fmt::format(" x{} = {} of [{}, {}]", v, row[v], box[v].low, box[v].high);
    }
    ASSERT_TRUE(has(interval, value)) << print(expression, Language::kInfix) << place << ": " << value << " of ["
                                      << interval.low << ", " << interval.high << "] " << interval.may_be_nan;
  }
}

class IntervalsOf : public testing::TestWithParam<Op> {};
INSTANTIATE_TEST_SUITE_P(, IntervalsOf, testing::ValuesIn(allOperators()),
                         [](const auto& tested) { return std::string(infoOf(tested.param).name); });

TEST_P(IntervalsOf, HaveTheValues) {
  std::vector<Token> tokens;
  for (int i = 0; i < infoOf(GetParam()).arity; ++i) tokens.push_back(Token::variable(static_cast<std::uint32_t>(i)));
  tokens.push_back(Token::operation(GetParam()));
  const Expression expression = Expression::create(tokens).value();
  Random random(7);
  for (int box = 0; box < 600 && !HasFailure(); ++box) checkBox(expression, random, 30);
}

TEST(Intervals, HaveTheValuesOfExpressions) {
  ExpressionGenerator generator({.seed = 3,
                                 .min_nodes = 2,
                                 .max_nodes = 25,
                                 .variables = 3,
                                 .parameters = 2,
                                 .ops = allOperators(),
                                 .parameter_probability = 0.1,
                                 .special_probability = 0.1});
  Random random(11);
  for (int i = 0; i < 3000 && !HasFailure(); ++i) checkBox(generator.next(), random, 20);
}

TEST(Intervals, ShowPolesAndUndefinedValues) {
  EXPECT_FALSE(of("1 / (x0 - 2)", {{1, 3}}).isFinite());
  EXPECT_TRUE(of("1 / (x0 - 2)", {{2.5, 3}}).isFinite());
  EXPECT_TRUE(of("1 / (x0 - x1)", {{1, 3}, {3.5, 9}}).isFinite());
  EXPECT_TRUE(of("log(x0)", {{-1, 3}}).may_be_nan);
  EXPECT_EQ(of("log(x0)", {{0, 1}}).low, -kInfinity);
  EXPECT_TRUE(of("tan(x0)", {{1, 2}}).high == kInfinity);
  EXPECT_TRUE(of("tan(x0)", {{2, 4}}).isFinite());
  EXPECT_TRUE(of("x0 ^ 0.5", {{-1, 1}}).may_be_nan);
  EXPECT_FALSE(of("x0 ^ -3", {{-1, 1}}).isFinite());
  EXPECT_FALSE(of("exp(x0)", {{0, 1000}}).isFinite());
  EXPECT_TRUE(of("asin(x0)", {{0, 1.01}}).may_be_nan);
}

TEST(Intervals, AreNarrowWhereAnOperatorIsMonotone) {
  const auto isNear = [](const Interval& interval, double low, double high) {
    return !interval.may_be_nan && std::fabs(interval.low - low) < 1e-14 && std::fabs(interval.high - high) < 1e-14;
  };
  EXPECT_TRUE(isNear(of("square(x0)", {{-1, 2}}), 0, 4));
  EXPECT_TRUE(isNear(of("sqrt(square(x0))", {{-1, 1}}), 0, 1));
  EXPECT_TRUE(isNear(of("x0 ^ 3", {{-1, 2}}), -1, 8));
  EXPECT_TRUE(isNear(of("x0 ^ 2", {{-1, 2}}), 0, 4));
  EXPECT_GE(of("x0 ^ -2", {{-1, 2}}).low, 0.25 - 1e-14);
  EXPECT_TRUE(isNear(of("sin(x0)", {{0, 2}}), 0, 1));
  EXPECT_TRUE(isNear(of("cos(x0)", {{3, 4}}), -1, std::cos(4)));
  EXPECT_TRUE(isNear(of("acos(x0)", {{-1, 1}}), 0, std::acos(-1.0)));
  EXPECT_TRUE(isNear(of("cosh(x0)", {{-1, 0.5}}), 1, std::cosh(1)));
  EXPECT_TRUE(isNear(of("tanh(x0) + x1", {{-1, 1}, {2, 3}}), 2 - std::tanh(1), 3 + std::tanh(1)));
}

// Of all operators: where the interval of a derivative has one sign, values move that way along the variable.
TEST(IntervalSlopes, OfOneSignProveAMonotoneTree) {
  Random random(5);
  std::size_t proved = 0;
  ExpressionGenerator trees({.seed = 9, .min_nodes = 2, .max_nodes = 9, .variables = 2, .ops = allOperators()});
  for (int i = 0; i < 7000; ++i) {
    const Expression tree = trees.next();
    if (tree.variableCount() == 0) continue;
    std::vector<Interval> box;
    for (int v = 0; v < 2; ++v) {
      const double low = random.between(-3.0, 3.0);
      box.push_back({low, low + random.between(0.01, 1.0), false});
    }
    const Interval slope = evaluateIntervalSlope(tree, box, 0), values = evaluateInterval(tree, box);
    if (slope.low > slope.high || (slope.low < 0 && slope.high > 0)) continue;
    if (tree.size() > 2 && slope.low != slope.high) ++proved;
    const double slack = 1e-13 * std::max({std::fabs(values.low), std::fabs(values.high), 1.0});
    for (int pair = 0; pair < 20; ++pair) {
      std::vector<double> at = {random.between(box[0].low, box[0].high), random.between(box[1].low, box[1].high)};
      const double first = evaluateReference(tree, at, {});
      const double low = at[0];
      at[0] = random.between(low, box[0].high);
      const double change = evaluateReference(tree, at, {}) - first;
      ASSERT_FALSE(slope.low >= 0 ? change < -slack : change > slack)
          << print(tree, Language::kInfix) << " from x0 = " << low << " to " << at[0] << ", x1 = " << at[1] << ": "
          << change << " of [" << slope.low << ", " << slope.high << "]";
    }
  }
  EXPECT_GT(proved, 500u);
}

TEST(IntervalSlopes, ProveNothingAcrossPolesAndJumps) {
  const std::vector<Interval> box = {{-1, 2, false}};
  for (const char* text : {"1 / x0", "tan(x0)", "floor(x0)", "inv(x0)", "mod(x0, 1)", "x0^(-1)", "log(x0)"}) {
    const Interval slope = evaluateIntervalSlope(infix(text), box, 0);
    EXPECT_TRUE(slope.low < 0 && slope.high > 0) << text << " " << slope.low << " " << slope.high;
  }
  EXPECT_GE(evaluateIntervalSlope(infix("sqrt(x0)"), std::vector<Interval>{{0, 2, false}}, 0).low, 0);
}

}  // namespace
}  // namespace srjit
