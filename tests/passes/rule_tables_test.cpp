// The compiled rules, and their conditions, as another processor has them.
#include "passes/rules/tables.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "passes/rules/rewriter.h"
#include "tests/generators/graphs.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

template <class T>
std::vector<T> bytesCopied(std::span<const T> values) {
  std::vector<T> copy(values.size());
  std::memcpy(copy.data(), values.data(), values.size_bytes());
  return copy;
}

/// What simplify() does, with a copy of the rules.
Dag simplifiedWithCopy(const Dag& dag, Math mode) {
  const RuleTables& rules = rulesFor(mode);
  const auto ops = bytesCopied(rules.ops);
  const auto variants = bytesCopied(rules.variants);
  const auto checks = bytesCopied(rules.checks);
  const auto steps = bytesCopied(rules.steps);
  const RuleTables copy = {ops, variants, checks, steps};
  WorkingDag work(dag);
  Rewriter rewriter(work.dag(), copy);
  work.rebuild([&](Op op, const Operands& operands) { return rewriter.build(op, operands); });
  return work.result();
}

TEST(RuleTables, ServeAsCopiesOfTheirBytes) {
  const std::vector<Expression> batch =
      ExpressionGenerator({.seed = 29, .max_nodes = 40, .variables = 3, .special_probability = 0.1}).batch(2000);
  for (const Precision precision : kPrecisions) {
    const Dag dag = Dag::fromExpressions(batch, precision);
    for (const Math mode : kMathModes) {
      EXPECT_EQ(simplifiedWithCopy(dag, mode), simplified(dag, mode)) << nameOf(precision) << ' ' << nameOf(mode);
    }
  }
}

TEST(RuleTables, HaveEveryRuleOfTheirModeAndOfStricterOnes) {
  for (const Math mode : kMathModes) {
    std::vector<bool> found(allRules().size());
    for (const RuleVariant& variant : rulesFor(mode).variants) found[variant.rule] = true;
    for (std::size_t rule = 0; rule < found.size(); ++rule) {
      EXPECT_EQ(found[rule], allRules()[rule].mode <= mode) << allRules()[rule].pattern_text;
    }
  }
}

std::size_t numberOf(std::string_view pattern, Math mode) {
  const auto rule = std::ranges::find_if(
      allRules(), [&](const Rule& each) { return each.pattern_text == pattern && each.mode == mode; });
  return static_cast<std::size_t>(rule - allRules().begin());
}

TEST(Conditions, FindThePowersOfTwoThatFrexpFinds) {
  const std::size_t division = numberOf("x0 / p0", Math::kStrict);
  const auto check = [&](double value) {
    int exponent = 0;
    const bool is_power = std::fabs(std::frexp(value, &exponent)) == 0.5;
    EXPECT_EQ(conditionHolds(division, value, 0, Precision::kF64), is_power && std::isnormal(1 / value)) << value;
    EXPECT_EQ(conditionHolds(division, value, 0, Precision::kF32),
              is_power && std::isnormal(static_cast<float>(1 / value)))
        << value;
  };
  for (const double value : specialNumbers<double>()) check(value);
  for (int exponent = -1075; exponent <= 1024; ++exponent) {
    const double power = std::ldexp(1.0, exponent);
    for (const double value : {power, std::nextafter(power, 0.0), std::nextafter(power, HUGE_VAL), 1.5 * power}) {
      check(value);
      check(-value);
    }
  }
  Random random(23);
  for (int i = 0; i < 10'000; ++i) check(anyBits<double>(random));
}

}  // namespace
}  // namespace srjit
