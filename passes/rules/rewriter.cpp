#include "passes/rules/rewriter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "ir/ops.h"
#include "ir/rows.h"
#include "passes/fma.h"
#include "passes/rules/node_sort.h"
#include "passes/rules/tables.h"

namespace srjit {

/// A rewrite that has begun.
struct Rewriter::Rewrite {
  const RewriteStep* next;  ///< the next step of the replacement; it may be rewritten itself
  const RewriteStep* end;
  std::size_t known;  ///< of `values`: those of the rule's wildcards and literals, and of the steps before
  std::array<NodeId, kRuleWildcards + kRuleLiterals + kRuleSteps> values;
};

Rewriter::Rewriter(Dag& dag, const RuleTables& rules) : dag_(dag), rules_(rules) {}
Rewriter::~Rewriter() = default;

template <int kArity>
NodeId Rewriter::settle(Op op, NodeId a, NodeId b, NodeId c) {
  if constexpr (kArity > 1) dag_.orderOperands(op, a, b);
  // Without branches, which would be hard to predict.
  const auto isConstant = [&](NodeId id) { return unsigned{isSortOfConstant(dag_.node(id).sort)}; };
  const unsigned constants = isConstant(a) & (kArity < 2 ? 1U : isConstant(b)) & (kArity < 3 ? 1U : isConstant(c));
  if (constants != 0) return fold(op, {a, b, c}, kArity);
  if (const std::uint64_t candidates = rules_.ops[static_cast<std::size_t>(op)].candidates<kArity>(dag_, a, b, c);
      candidates != 0) {
    const NodeId rewritten = applyRule(op, candidates, a, b, c);
    if (rewritten != kNone) return rewritten;
  }
  if constexpr (kArity == 2) {
    sums_of_products_ |= unsigned{isSum(op)} & (unsigned{isFusible(dag_.node(a))} | unsigned{isFusible(dag_.node(b))});
  }
  return dag_.applyOrdered<kArity>(op, a, b, c);
}

template NodeId Rewriter::settle<1>(Op op, NodeId a, NodeId b, NodeId c);
template NodeId Rewriter::settle<2>(Op op, NodeId a, NodeId b, NodeId c);
template NodeId Rewriter::settle<3>(Op op, NodeId a, NodeId b, NodeId c);

NodeId Rewriter::settle(Op op, int arity, NodeId a, NodeId b, NodeId c) {
  switch (arity) {
    case 1:
      return settle<1>(op, a, b, c);
    case 2:
      return settle<2>(op, a, b, c);
    default:
      return settle<3>(op, a, b, c);
  }
}

NodeId Rewriter::fold(Op op, const Operands& operands, int arity) {
  std::array<double, kMaxArity> values{};
  for (std::size_t i = 0; i < kMaxArity; ++i) values[i] = dag_.node(operands[i]).value;
  const std::span<const double> used = std::span(values).first(static_cast<std::size_t>(arity));
  const NodeId value = dag_.constant(valueOf(op, used, dag_.precision()));
  if (log_ != nullptr) reportFold(op, operands, value);
  return value;
}

// Not inlined, since few nodes have candidates.
[[gnu::noinline]] NodeId Rewriter::applyRule(Op op, std::uint64_t candidates, NodeId a, NodeId b, NodeId c) {
  Terms terms{a, b, c};
  const auto addOperands = [&](std::uint8_t of, NodeId id) {
    const Operands& operands = dag_.node(id).operands;
    for (std::size_t i = 0; i < kMaxArity; ++i) terms[operandTermsOf(of) + i] = operands[i];
  };
  addOperands(0, a);
  addOperands(1, b);
  addOperands(2, c);
  const std::uint32_t first = rules_.ops[static_cast<std::size_t>(op)].first;
  for (; candidates != 0; candidates &= candidates - 1) {
    const RuleVariant& variant = rules_.variants[first + static_cast<std::size_t>(std::countr_zero(candidates))];
    if (!matches(rules_.checksOf(variant), dag_, terms)) continue;
    const NodeId p0 = terms[variant.literals[0]], p1 = terms[variant.literals[1]];
    // A condition is about constants.
    if (variant.has_literal &&
        !conditionHolds(variant.rule, dag_.node(p0).value, dag_.node(p1).value, dag_.precision()))
      continue;
    const auto wildcard = [&](std::size_t i) { return terms[variant.wildcards[i]]; };
    const std::array<NodeId, kRuleWildcards + kRuleLiterals> known = {wildcard(0), wildcard(1), wildcard(2), p0, p1};
    const std::span<const RewriteStep> steps = rules_.stepsOf(variant);
    if (log_ != nullptr) {
      reportRule(variant.rule, op, {a, b, c});
      if (steps.empty()) reportEnd(known[variant.value]);
    }
    if (steps.empty()) return known[variant.value];
    Rewrite& rewrite = rewrites_.emplace_back();
    rewrite.next = steps.data();
    rewrite.end = steps.data() + steps.size();
    rewrite.known = known.size();
    std::ranges::copy(known, rewrite.values.begin());
    return kRewriting;
  }
  return kNone;
}

NodeId Rewriter::takeStep(const RewriteStep& step, Rewrite& rewrite) {
  if (step.arity == 0) return dag_.constant(step.constant);
  const auto operand = [&](std::size_t k) {
    return k < static_cast<std::size_t>(step.arity) ? rewrite.values[step.operands[k]] : 0;
  };
  return settle(step.op, step.arity, operand(0), operand(1), operand(2));
}

NodeId Rewriter::finishRewrites() {
  for (;;) {
    Rewrite& current = rewrites_.back();
    const NodeId value = takeStep(*current.next++, current);
    if (value == kRewriting) continue;
    // Its rewrite, and those whose last step this was, are done.
    for (;;) {
      Rewrite& waiting = rewrites_.back();
      if (waiting.next != waiting.end) {
        waiting.values[waiting.known++] = value;
        break;
      }
      rewrites_.pop_back();
      if (log_ != nullptr) reportEnd(value);
      if (rewrites_.empty()) return value;
    }
  }
}

namespace {

bool isNormal(double value, Precision precision) {
  return withZeroOf(precision, [&]<class T>(T) { return std::isnormal(static_cast<T>(value)); });
}

/// Whether the magnitude of `value` is a power of two.
bool isPowerOfTwo(double value) {
  // From the bits, since std::frexp is a call.
  constexpr int kFractionBits = std::numeric_limits<double>::digits - 1;
  constexpr std::uint64_t kInfinity = std::bit_cast<std::uint64_t>(std::numeric_limits<double>::infinity());
  const std::uint64_t magnitude = std::bit_cast<std::uint64_t>(value) & ~(std::uint64_t{1} << 63);
  const std::uint64_t fraction = magnitude & ((std::uint64_t{1} << kFractionBits) - 1);
  const bool is_subnormal = fraction == magnitude;
  return is_subnormal ? std::has_single_bit(fraction) : fraction == 0 && magnitude != kInfinity;
}

/// A division by `value` is then a multiplication, bit for bit.
bool hasExactReciprocal(double value, Precision precision) {
  return isPowerOfTwo(value) && isNormal(1 / value, precision);
}

// The thresholds of two rows of ops.def as kernels have them.
double thresholdOfPdiv(Precision precision) {
  return withZeroOf(precision, []<class T>(T) { return double{static_cast<T>(0.001)}; });
}
double thresholdOfLooseDiv(Precision precision) {
  return withZeroOf(precision, []<class T>(T) { return double{static_cast<T>(1e-9)}; });
}

/// By rule: its line in the table, for the labels of a `switch`, since rows have no names.
constexpr std::uint16_t kLinesOfRules[] = {
#define SRJIT_RULE(...) __LINE__,
#include "passes/rules/simplify.def"
#undef SRJIT_RULE
};

}  // namespace

bool conditionHolds(std::size_t rule, [[maybe_unused]] double p0, [[maybe_unused]] double p1,
                    [[maybe_unused]] Precision precision) noexcept {
  switch (kLinesOfRules[rule]) {
#define SRJIT_RULE(mode, pattern, replacement, condition) \
  case __LINE__:                                          \
    return condition;
#include "passes/rules/simplify.def"
#undef SRJIT_RULE
    default:
      __builtin_unreachable();
  }
}

}  // namespace srjit
