// The classes of rules, and how large a rule may be.
#pragma once

#include <cstddef>
#include <string_view>

#include "ir/numeric.h"

namespace srjit {

/// The properties that a rule keeps; see simplify.def.
enum class RuleClass { kExact, kPrecise, kFast };
constexpr std::string_view wordOf(RuleClass rule_class) {
  switch (rule_class) {
    case RuleClass::kExact:
      return "exact";
    case RuleClass::kPrecise:
      return "precise";
    case RuleClass::kFast:
      return "fast";
  }
  __builtin_unreachable();
}

/// The most wildcards x0 x1 x2, and constants p0 p1, of a rule.
inline constexpr std::size_t kRuleWildcards = 3;
inline constexpr std::size_t kRuleLiterals = 2;
/// The most operators and constants of a replacement.
inline constexpr std::size_t kRuleSteps = 5;

/// The rules of a math mode, where its approximations apply.
constexpr RuleClass ruleClassOf(Math math) {
  switch (math) {
    case Math::kStrict:
      return RuleClass::kExact;
    case Math::kPrecise:
      return RuleClass::kPrecise;
    case Math::kFast:
      return RuleClass::kFast;
  }
  __builtin_unreachable();
}

/// The rules that standard pipelines apply: without approximations, fast is as precise.
constexpr RuleClass ruleClassOf(Math math, Precision precision) {
  const bool is_fast_without = math == Math::kFast && !isApproximate(math, precision);
  return is_fast_without ? RuleClass::kPrecise : ruleClassOf(math);
}

}  // namespace srjit
