// The derivative of a graph's root by one of its nodes, while it is made.
#pragma once

#include "passes/dag.h"
#include "passes/gradient/graph_domain.h"

namespace srjit {

/// `value` in its rows, and 0 in the others: where the node is in a branch that is not taken, in which `value` may be
/// NaN. So nothing is multiplied by that 0, neither here nor below.
struct Adjoint {
  NodeId value;
  graph::Rows rows = {};

  /// As one node.
  NodeId in(const graph::NodeMaker& maker) const;
};

/// The adjoint that an operand gets from a node with adjoint `of_node` and this partial derivative, not the number 0.
Adjoint times(const Adjoint& of_node, const graph::Value& partial, const graph::NodeMaker& maker);
Adjoint sum(const Adjoint& x, const Adjoint& y, const graph::NodeMaker& maker);

}  // namespace srjit
