// The rules of simplify.def and the engine that applies them.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "ir/expression.h"
#include "ir/numeric.h"
#include "passes/dag.h"
#include "passes/pass.h"
#include "passes/working_dag.h"

namespace srjit {

/// What a rule keeps; see simplify.def.
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

/// One row of simplify.def.
struct Rule {
  RuleClass rule_class;
  std::string_view pattern_text;
  std::string_view replacement_text;
  bool (*condition)(double p0, double p1, Precision precision);
  Expression pattern;
  Expression replacement;
};

/// All rules, in the order of the table. Thread-safe.
std::span<const Rule> allRules();

/// Applies the rules up to `rule_class` from the leaves to the roots until none matches, and computes operators over
/// constants, as Rewriter does (passes/rules/rewriter.h). Not recursive. `log`, if given, gets what was replaced.
void simplify(WorkingDag& work, RuleClass rule_class, Math math, RewriteLog* log = nullptr);
Dag simplify(const Dag& dag, RuleClass rule_class, Math math);

}  // namespace srjit
