#include "passes/simplify_expression.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "passes/rules/rewriter.h"
#include "passes/rules/tables.h"
#include "passes/working_dag.h"

namespace srjit {
namespace {

constexpr NodeId kNoNode = ~NodeId{0};
constexpr double kMostDenominator = 1000;
constexpr int kMostPasses = 8;

struct Power {
  NodeId base, exponent;
};

/// Of exp2(log2(base) * exponent), in which kernels compute powers. Exponents that rules turn into something simpler
/// than a power give none.
std::optional<Power> powerIn(const Dag& graph, const Node& node) {
  const auto isOf = [](const Node& tested, Op op) { return tested.isOperator() && tested.op == op; };
  const Node& product = graph.node(node.operands[0]);
  if (!isOf(node, Op::kExp2) || !isOf(product, Op::kMul)) return {};
  NodeId base = product.operands[0], exponent = product.operands[1];
  if (!isOf(graph.node(base), Op::kLog2)) std::swap(base, exponent);
  if (!isOf(graph.node(base), Op::kLog2)) return {};
  const Node& power = graph.node(exponent);
  if (power.kind == Token::Kind::kConstant &&
      (power.value == std::trunc(power.value) || std::fabs(power.value) == 0.5)) {
    return {};
  }
  return Power{graph.node(base).operands[0], exponent};
}

/// The base of exp2(logarithm * x), in which kernels compute base^x: a number of up to six digits, or e. Powers of two
/// stay as they are.
std::optional<double> baseOf(double logarithm) {
  if (logarithm == std::trunc(logarithm)) return {};
  if (logarithm == std::numbers::log2e) return std::numbers::e;
  constexpr double kScale = 1e5;
  const double base = std::exp2(logarithm);
  if (!(base > 1 / kScale && base < kScale)) return {};
  const double unit = std::pow(10, std::floor(std::log10(base))) / kScale;
  const double rounded = unit < 1 ? std::rint(base / unit) / std::rint(1 / unit) : std::rint(base / unit) * unit;
  return std::log2(rounded) == logarithm ? std::optional(rounded) : std::nullopt;
}

/// Whether x * factor is rather written x / n: then n, an integer.
std::optional<double> denominatorOf(double factor) {
  const double denominator = std::rint(1 / factor);
  if (!(std::fabs(denominator) <= kMostDenominator) || 1 / denominator != factor) return {};
  // A factor such as 0.125 or 0.05 is short itself.
  const double scaled = factor * 1e4;
  return std::rint(scaled) / 1e4 == factor ? std::nullopt : std::optional(denominator);
}

/// Writes a graph as people do: powers, quotients and signs. Those of powers and quotients are for fast mathematics;
/// those of signs keep every bit, since negation is exact and rounding is symmetric.
class Presentation {
 public:
  Presentation(const Dag& graph, Math math)
      : graph_(graph), is_fast_(math == Math::kFast), result_(graph.precision()) {}

  /// The graph; once.
  Dag make() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      const Form form = node.isOperator() ? formOf(node) : leafOf(id);
      forms_.push_back(form);
    }
    for (const NodeId root : graph_.roots()) result_.addRoot(forms_[root].node);
    return std::move(result_);
  }

  /// Whether make() changed the sign of a term, so that rules may apply which did not.
  bool hasNewSigns() const noexcept { return has_new_signs_; }

 private:
  /// A node of the result, and its negation, if that is simpler or as simple.
  struct Form {
    NodeId node, negated = kNoNode;
    bool isNegative() const { return negated != kNoNode; }
  };

  NodeId make(Op op, NodeId a, NodeId b) { return result_.applyOrdered(op, {a, b, 0}); }

  Form leafOf(NodeId id) {
    const Node& leaf = graph_.node(id);
    const NodeId node = result_.copyLeaf(graph_, id);
    const bool is_negative = leaf.kind == Token::Kind::kConstant && leaf.value < 0;
    return {node, is_negative ? result_.constant(-leaf.value) : kNoNode};
  }

  Form formOf(const Node& node) {
    if (is_fast_) {
      if (const std::optional<NodeId> power = powerOf(node)) return {*power};
    }
    switch (node.op) {
      case Op::kNeg:
        return negationOf(forms_[node.operands[0]]);
      case Op::kMul:
      case Op::kDiv:
        return productOf(node);
      case Op::kAdd:
        return {sumOf(node)};
      case Op::kSub:
        return {differenceOf(node)};
      default:
        break;
    }
    Operands operands{};
    for (std::size_t i = 0; i < node.inputs().size(); ++i) operands[i] = forms_[node.operands[i]].node;
    return {result_.applyOrdered(node.op, operands)};
  }

  std::optional<NodeId> powerOf(const Node& node) {
    if (const std::optional<Power> power = powerIn(graph_, node)) {
      return make(Op::kPow, forms_[power->base].node, forms_[power->exponent].node);
    }
    if (node.op != Op::kExp2) return {};
    const Node& product = graph_.node(node.operands[0]);
    if (!product.isOperator() || product.op != Op::kMul) return {};
    NodeId factor = product.operands[0], exponent = product.operands[1];
    if (graph_.node(factor).kind != Token::Kind::kConstant) std::swap(factor, exponent);
    if (graph_.node(factor).kind != Token::Kind::kConstant) return {};
    const std::optional<double> base = baseOf(graph_.node(factor).value);
    if (!base) return {};
    const NodeId power = forms_[exponent].node;
    if (*base == std::numbers::e) return result_.apply(Op::kExp, {power});
    return make(Op::kPow, result_.constant(*base), power);
  }

  Form negationOf(const Form& operand) {
    if (operand.isNegative()) return {sign(operand.negated)};
    return {result_.apply(Op::kNeg, {operand.node}), operand.node};
  }

  Form productOf(const Node& node) {
    const Form a = forms_[node.operands[0]], b = forms_[node.operands[1]];
    if (a.isNegative() && b.isNegative()) return {sign(quotientOr(node, a.negated, b.negated))};
    Form form{quotientOr(node, a.node, b.node)};
    if (a.isNegative()) form.negated = quotientOr(node, a.negated, b.node);
    if (b.isNegative()) form.negated = quotientOr(node, a.node, b.negated);
    return form;
  }

  /// The product or quotient `node` of other operands. A product with 1/3 is a quotient by 3.
  NodeId quotientOr(const Node& node, NodeId a, NodeId b) {
    if (node.op == Op::kMul && is_fast_) {
      const auto divided = [&](NodeId factor, NodeId other) -> std::optional<NodeId> {
        if (result_.node(factor).kind != Token::Kind::kConstant) return {};
        const std::optional<double> denominator = denominatorOf(result_.node(factor).value);
        if (!denominator) return {};
        return make(Op::kDiv, other, result_.constant(*denominator));
      };
      if (const std::optional<NodeId> quotient = divided(a, b)) return *quotient;
      if (const std::optional<NodeId> quotient = divided(b, a)) return *quotient;
    }
    return make(node.op, a, b);
  }

  NodeId sumOf(const Node& node) {
    Form a = forms_[node.operands[0]], b = forms_[node.operands[1]];
    // A constant is rather subtracted than subtracted from.
    const bool is_first = b.isNegative() && graph_.node(node.operands[0]).kind == Token::Kind::kConstant;
    if (a.isNegative() && (is_first || !b.isNegative())) std::swap(a, b);
    if (b.isNegative()) return sign(make(Op::kSub, a.node, b.negated));
    return make(Op::kAdd, forms_[node.operands[0]].node, forms_[node.operands[1]].node);
  }

  NodeId differenceOf(const Node& node) {
    const Form a = forms_[node.operands[0]], b = forms_[node.operands[1]];
    if (a.isNegative() && b.isNegative()) return sign(make(Op::kSub, b.negated, a.negated));
    if (!b.isNegative()) return make(Op::kSub, a.node, b.node);
    return sign(make(Op::kAdd, a.node, b.negated));
  }

  NodeId sign(NodeId id) {
    has_new_signs_ = true;
    return id;
  }

  const Dag& graph_;
  bool is_fast_;
  Dag result_;
  bool has_new_signs_ = false;
  std::vector<Form> forms_;  ///< by node of graph_
};

}  // namespace

Expression simplify(const Expression& expression, Math math, Precision precision) {
  Expression simple = expression;
  // Rules may apply to sums that were differences, and so on.
  for (int pass = 0; pass < kMostPasses; ++pass) {
    WorkingDag work(Dag::fromExpressions({&simple, 1}, precision));
    Rewriter rewriter(work.dag(), rulesFor(math));
    work.rebuild([&](Op op, const Operands& operands) { return rewriter.build(op, operands); });
    const Dag graph = work.result();
    Presentation presentation(graph, math);
    // Every rule reduces the weight of the tree (simplify.def), so there is no need to bound the number of tokens.
    Expression next = presentation.make().toExpression(0, std::numeric_limits<std::size_t>::max()).value();
    if (!presentation.hasNewSigns() || next == simple) return next;
    simple = std::move(next);
  }
  return simple;
}

}  // namespace srjit
