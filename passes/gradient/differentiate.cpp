#include "passes/gradient/differentiate.h"

#include <algorithm>
#include <ranges>

#include "ir/rows.h"

namespace srjit {
namespace {

// Without rules, too, a graph has no factors 1 and -1, which most cells are.
NodeId times(NodeId adjoint, const graph::Value& partial, const graph::NodeMaker& maker) {
  if (partial.isLiteral() && partial.literal() == 1) return adjoint;
  if (partial.isLiteral() && partial.literal() == -1) return maker.apply(Op::kNeg, {adjoint, 0, 0});
  const Node& node = maker.dag().node(adjoint);
  const bool is_one = node.kind == Token::Kind::kConstant && node.value == 1;
  return is_one ? partial.in(maker) : maker.apply(Op::kMul, {adjoint, partial.in(maker), 0});
}

}  // namespace

void Differentiator::begin(const Source& source, const graph::NodeMaker& maker, std::span<NodeId> derivatives) {
  const std::size_t size = std::max(adjoints_.size(), maker.dag().size());
  wanted_.resize(size);
  depends_.resize(size);
  adjoints_.resize(size);
  for (const NodeId id : source.members) adjoints_[id] = kNone;
  std::ranges::fill(derivatives, kNone);
}

void Differentiator::sweep(const Source& source, const graph::NodeMaker& maker, std::span<NodeId> derivatives) {
  for (const NodeId id : source.members) {
    depends_[id] = static_cast<std::uint8_t>(wanted_[id] != kNotWanted);
    // The operands of a wanted node need not be members.
    if (depends_[id] != 0) continue;
    for (const NodeId operand : maker.dag().node(id).inputs()) depends_[id] |= depends_[operand];
  }
  if (depends_[source.root] != 0) adjoints_[source.root] = maker.constant(1);
  for (const NodeId id : source.members | std::views::reverse) {
    if (depends_[id] == 0 || adjoints_[id] == kNone) continue;
    if (wanted_[id] != kNotWanted) {
      derivatives[wanted_[id]] = adjoints_[id];
    } else {
      pass(id, maker);
    }
  }
  for (NodeId& derivative : derivatives) {
    if (derivative == kNone) derivative = maker.constant(0);
  }
}

// The chain rule: what the operands of a node contribute to the root.
void Differentiator::pass(NodeId id, const graph::NodeMaker& maker) {
  const Node node = maker.dag().node(id);  // a copy, since nodes are added
  const auto valueOf = [&](NodeId operand) { return graph::Value(operand, maker); };
  const auto [x, y, z] = node.operands;
  for (int k = 0; k < node.arity(); ++k) {
    const NodeId operand = node.operands[static_cast<std::size_t>(k)];
    if (depends_[operand] == 0) continue;
    const graph::Value partial = derivativeRow(node.op, k, valueOf(x), valueOf(y), valueOf(z), valueOf(id));
    if (partial.isLiteral() && partial.literal() == 0) continue;
    add(operand, times(adjoints_[id], partial, maker), maker);
  }
}

void Differentiator::add(NodeId id, NodeId contribution, const graph::NodeMaker& maker) {
  NodeId& adjoint = adjoints_[id];
  adjoint = adjoint == kNone ? contribution : maker.apply(Op::kAdd, {adjoint, contribution, 0});
}

}  // namespace srjit
