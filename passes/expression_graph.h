// The graph of one expression or of its derived quantities, in the memory of its maker.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "passes/dag.h"

namespace srjit {

/// The result of ExpressionOptimizer and DerivedOptimizer. Valid until their next run.
struct ExpressionGraph {
  const Dag& dag;  ///< may have dead nodes, and has constants as such
  std::span<const NodeId> roots;
  /// The nodes that the roots need, each after its operands. In the order of evaluation (passes/schedule.h) if there
  /// are several roots, or values may have to be kept meanwhile: what a root needs is then before what only later ones
  /// need.
  std::span<const NodeId> members;
  std::span<const std::uint32_t> uses;  ///< by node: by members and by roots

  /// Of a graph with one root.
  NodeId root() const noexcept { return roots[0]; }

  /// Adds its nodes to another graph, and its roots as the next ones. The memory of `places` is used again.
  void appendTo(Dag& batch, std::vector<NodeId>& places) const {
    batch.copyNodes(dag, members, places);
    for (const NodeId each : roots) batch.addRoot(places[each]);
  }
};

}  // namespace srjit
