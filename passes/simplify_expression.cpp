#include "passes/simplify_expression.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "ir/ops.h"
#include "passes/rules/simplify.h"

namespace srjit {
namespace {

struct Power {
  NodeId base, exponent;
};

/// Of exp2(log2(base) * exponent), in which kernels compute powers. Exponents of which rules make something simpler
/// than a power are none.
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

/// The graph with its powers as they are read.
Dag withPowers(const Dag& graph) {
  Dag result(graph.precision());
  std::vector<NodeId> places;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (!node.isOperator()) {
      places.push_back(result.copyLeaf(graph, id));
    } else if (const std::optional<Power> power = powerIn(graph, node)) {
      places.push_back(result.apply(Op::kPow, {places[power->base], places[power->exponent]}));
    } else {
      Operands operands{};
      for (std::size_t i = 0; i < node.inputs().size(); ++i) operands[i] = places[node.operands[i]];
      places.push_back(result.applyOrdered(node.op, operands));
    }
  }
  for (const NodeId root : graph.roots()) result.addRoot(places[root]);
  return result;
}

}  // namespace

Expression simplify(const Expression& expression, Math math, Precision precision) {
  const Dag graph = Dag::fromExpressions({&expression, 1}, precision);
  // Every rule reduces the weight of the tree (simplify.def), so there is no need to bound the number of tokens.
  Dag simple = simplify(graph, ruleClassOf(math), math);
  if (math == Math::kFast) simple = withPowers(simple);
  return simple.toExpression(0, std::numeric_limits<std::size_t>::max()).value();
}

}  // namespace srjit
