#include "passes/rules/rewriter.h"

#include <algorithm>
#include <bit>
#include <span>

#include "ir/ops.h"
#include "ir/rows.h"
#include "passes/fma.h"
#include "passes/rules/node_sort.h"
#include "passes/rules/tables.h"

namespace srjit {

double valueOf(Op op, std::span<const double> operands, Precision precision) {
  std::array<double, kMaxArity> x{};
  std::ranges::copy(operands, x.begin());
  return withZeroOf(precision, [&]<class T>(T) {
    return static_cast<double>(applyRow<T>(op, static_cast<T>(x[0]), static_cast<T>(x[1]), static_cast<T>(x[2])));
  });
}

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

}  // namespace srjit
