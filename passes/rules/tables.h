// The rules of simplify.def, compiled: flat arrays of plain values that refer to one another by index; when rules
// apply: the math mode of a pipeline, and conditions; and the rules as expressions.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ir/expression.h"
#include "ir/numeric.h"
#include "ir/ops.h"
#include "passes/dag.h"
#include "passes/rules/node_sort.h"

namespace srjit {

class RewriteLog;
class WorkingDag;

inline constexpr std::size_t kSorts = kFirstOpSort + kOpCount;
static_assert(kSorts <= 256, "a sort has 8 bits");
/// The most wildcards x0 x1 x2, and constants p0 p1, of a rule.
inline constexpr std::size_t kRuleWildcards = 3;
inline constexpr std::size_t kRuleLiterals = 2;
/// The most operators and constants of a replacement.
inline constexpr std::size_t kRuleSteps = 5;

/// Nodes that tokens of a pattern stand for: the operands of its root, then the operands of each of these, then terms
/// further down.
inline constexpr std::uint8_t kOperandTerms = kMaxArity + kMaxArity * kMaxArity;
inline constexpr std::size_t kMostTerms = kOperandTerms + 2 * kMaxArity;
using Terms = std::array<NodeId, kMostTerms>;
constexpr std::uint8_t operandTermsOf(std::uint8_t operand) {
  return static_cast<std::uint8_t>(kMaxArity * (operand + 1));
}

/// One check of a term. Checks of a pattern are in an order in which each term is known before it is checked. What the
/// sorts of the root's operands say needs none.
struct RuleCheck {
  enum class Kind : std::uint8_t {
    kOperator,  ///< it is `op`, whose operands are the terms from `other` on
    kConstant,  ///< it is the constant of these bits
    kLiteral,   ///< it is a constant
    kSame,      ///< it is the term `other`; equal constants are one node
  };
  Kind kind;
  std::uint8_t term;
  std::uint8_t other = 0;
  Op op{};
  std::uint64_t bits = 0;
};

/// Whether all checks hold. The terms that checks of operators name are written to `terms`.
inline bool matches(std::span<const RuleCheck> checks, const Dag& dag, Terms& terms) {
  for (const RuleCheck& check : checks) {
    const Node& node = dag.node(terms[check.term]);
    switch (check.kind) {
      case RuleCheck::Kind::kOperator:
        if (node.kind != Token::Kind::kOp || node.op != check.op) return false;
        for (std::size_t k = 0; k < kMaxArity; ++k) terms[check.other + k] = node.operands[k];
        break;
      case RuleCheck::Kind::kConstant:
        if (node.kind != Token::Kind::kConstant || std::bit_cast<std::uint64_t>(node.value) != check.bits) return false;
        break;
      case RuleCheck::Kind::kLiteral:
        if (node.kind != Token::Kind::kConstant) return false;
        break;
      case RuleCheck::Kind::kSame:
        if (terms[check.term] != terms[check.other]) return false;
        break;
    }
  }
  return true;
}

/// A step of a replacement: an operator over known values, which are the rule's wildcards, its literals, and the
/// values of the steps before.
struct RewriteStep {
  int arity;  ///< 0: a constant
  Op op;
  std::array<std::uint8_t, kMaxArity> operands;
  double constant;
};

/// A rule whose pattern has its commutative operators in certain orders.
struct RuleVariant {
  std::uint32_t first_check, check_count;  ///< of RuleTables::checks
  std::uint32_t first_step, step_count;    ///< of RuleTables::steps; the last one is the replacement's value
  std::uint32_t rule;                      ///< its number in allRules()
  std::array<std::uint8_t, kRuleWildcards> wildcards;  ///< the terms that they are
  std::array<std::uint8_t, kRuleLiterals> literals;
  bool has_literal;    ///< whether there is p0; a rule with p1 has it, too
  std::uint8_t value;  ///< of a replacement without steps: its place among the known values
};

/// The rules whose pattern has one operator at its root, as variants: strict ones first, then precise, then fast ones;
/// those of one mode in the order of simplify.def. A set of 64 bits has one bit for each.
struct RulesOfOp {
  std::array<std::array<std::uint64_t, kSorts>, kMaxArity> takes;  ///< sets of variants by operand and its sort
  std::uint64_t twice;                                             ///< variants whose two operands are one wildcard
  std::uint32_t first;  ///< of RuleTables::variants: the one of the lowest bit

  /// The variants that may match the operands.
  template <int kArity>
  std::uint64_t candidates(const Dag& dag, NodeId a, NodeId b, NodeId c) const {
    std::uint64_t found = takes[0][dag.node(a).sort];
    if constexpr (kArity > 1) found &= takes[1][dag.node(b).sort] & ~(a == b ? 0 : twice);
    if constexpr (kArity > 2) found &= takes[2][dag.node(c).sort];
    return found;
  }
};

/// A view of compiled rules.
struct RuleTables {
  std::span<const RulesOfOp> ops;  ///< by operator
  std::span<const RuleVariant> variants;
  std::span<const RuleCheck> checks;
  std::span<const RewriteStep> steps;

  std::span<const RuleCheck> checksOf(const RuleVariant& variant) const {
    return checks.subspan(variant.first_check, variant.check_count);
  }
  std::span<const RewriteStep> stepsOf(const RuleVariant& variant) const {
    return steps.subspan(variant.first_step, variant.step_count);
  }
};

/// The rules of `mode` and of stricter modes. Made once; they stay until the process ends. Thread-safe.
const RuleTables& rulesFor(Math mode);

/// The mode whose rules (simplify.def) standard pipelines apply: without approximations, fast is as precise.
constexpr Math ruleModeOf(Math math, Precision precision) {
  return math == Math::kFast && !isApproximate(math, precision) ? Math::kPrecise : math;
}

/// Whether the condition of rule number `rule` of allRules() holds for these constants. Thread-safe.
bool conditionHolds(std::size_t rule, double p0, double p1, Precision precision) noexcept;

/// One row of simplify.def without its condition, which is conditionHolds().
struct Rule {
  Math mode;
  std::string_view pattern_text;
  std::string_view replacement_text;
  Expression pattern;
  Expression replacement;
};

/// All rules, in the order of the table. Thread-safe.
std::span<const Rule> allRules();

/// Applies the rules of `mode` and of stricter modes from the leaves to the roots until none matches, and computes
/// operators over constants, as Rewriter does (passes/rules/rewriter.h). Not recursive. `log`, if given, gets the
/// replaced nodes.
void simplify(WorkingDag& work, Math mode, RewriteLog* log = nullptr);

}  // namespace srjit
