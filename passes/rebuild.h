// The frame of every pass: a new graph made from the nodes that a root of the old one reaches.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "passes/dag.h"

namespace srjit {

/// For every node, 1 if a root reaches it, else 0. Linear, not recursive.
std::vector<std::uint8_t> reachableNodes(const Dag& dag);

/// Adds to the empty graph `to` what `from` computes, without unreachable nodes, in ascending order of id. `leaf(id)`
/// gives the node of `to` that stands for the leaf `id`; `operation(op, operands)` that of an operator over operands of
/// `to`.
template <class Leaf, class Operation>
void rebuildInto(Dag& to, const Dag& from, const Leaf& leaf, const Operation& operation) {
  const std::vector<std::uint8_t> reachable = reachableNodes(from);
  std::vector<NodeId> image(from.size());
  to.reserve(from.size());
  for (NodeId id = 0; id < from.size(); ++id) {
    if (reachable[id] == 0) continue;
    const Node& node = from.node(id);
    if (node.kind != Token::Kind::kOp) {
      image[id] = leaf(id);
      continue;
    }
    std::array<NodeId, kMaxArity> operands{};
    const auto arity = static_cast<std::size_t>(node.arity());
    for (std::size_t i = 0; i < arity; ++i) operands[i] = image[node.operands[i]];
    image[id] = operation(node.op, std::span<const NodeId>(operands.data(), arity));
  }
  for (const NodeId root : from.roots()) to.addRoot(image[root]);
}

/// `dag` without its unreachable nodes and parameters.
Dag withoutUnreachable(Dag dag);

}  // namespace srjit
