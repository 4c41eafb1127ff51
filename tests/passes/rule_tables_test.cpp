// The compiled rules, and their conditions.
#include "passes/rules/tables.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/generators/data.h"

namespace srjit {
namespace {

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
