// When rules apply: the math mode of a pipeline, and conditions; and how large a rule may be. Plain code without
// pointers to functions: the same source serves a host and a device.
#pragma once

#include <cstddef>

#include "ir/numeric.h"

namespace srjit {

/// The most wildcards x0 x1 x2, and constants p0 p1, of a rule.
inline constexpr std::size_t kRuleWildcards = 3;
inline constexpr std::size_t kRuleLiterals = 2;
/// The most operators and constants of a replacement.
inline constexpr std::size_t kRuleSteps = 5;

/// The mode whose rules (simplify.def) standard pipelines apply: without approximations, fast is as precise.
constexpr Math ruleModeOf(Math math, Precision precision) {
  return math == Math::kFast && !isApproximate(math, precision) ? Math::kPrecise : math;
}

/// Whether the condition of rule number `rule` of allRules() holds for these constants. Thread-safe.
bool conditionHolds(std::size_t rule, double p0, double p1, Precision precision) noexcept;

}  // namespace srjit
