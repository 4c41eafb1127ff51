// The nodes that roots of a graph need, their order of evaluation, and the graph of one expression as these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "passes/dag.h"

namespace srjit {

/// The graph of one expression or of its derived quantities, in the memory of its maker, and valid until the maker's
/// next run.
struct ExpressionGraph {
  const Dag& dag;  ///< may have dead nodes, and has constants as such
  std::span<const NodeId> roots;
  /// The nodes that the roots need, each after its operands. In the order of evaluation (Scheduler) if there
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

/// Finds the nodes by a sweep over the graph from the last root down, without sorting: quicker than RootMembers where
/// roots need most of the nodes before them. Keeps its working memory between calls, whatever their graphs. Not
/// thread-safe.
class MemberSweep {
 public:
  /// Lists the nodes that `roots` need, and counts their uses by these nodes and roots. The cost depends on the
  /// nodes of the graph.
  void run(const Dag& dag, std::span<const NodeId> roots);

  /// Ascending, so each after its operands. Valid until the next call.
  std::span<const NodeId> members() const noexcept { return members_; }
  /// By node.
  std::span<const std::uint32_t> uses() const noexcept { return uses_; }
  /// Whether an operator is used more than once.
  bool isShared() const noexcept { return is_shared_; }

 private:
  std::vector<std::uint32_t> uses_;
  std::vector<NodeId> list_;  ///< members are at its end
  std::span<const NodeId> members_;
  bool is_shared_ = false;
};

/// Finds them by a traversal. Otherwise as MemberSweep.
class RootMembers {
 public:
  /// Lists the nodes from `first` on that `roots` need, and counts uses by these nodes and roots. The cost depends
  /// only on these nodes.
  void collect(const Dag& dag, std::span<const NodeId> roots, NodeId first = 0);

  std::span<const NodeId> members() const noexcept { return members_; }
  std::span<const std::uint32_t> uses() const noexcept { return uses_; }

 private:
  std::vector<NodeId> members_;
  std::vector<NodeId> others_;  ///< nodes before the first that are used
  std::vector<std::uint32_t> uses_;
};

/// Sorts nodes that a traversal from a root met, which are nearly in descending order, ascending.
void sortMet(std::span<NodeId> nodes);

/// Orders nodes of graphs of less than 2^31 nodes by their needs; keeps its working memory between calls. Not
/// thread-safe.
class Scheduler {
 public:
  /// The nodes that `roots` need, in the order of evaluation: of the operands of a node, that which needs most
  /// registers first (Node::need); leaves just before they are used. `count` is the number of these nodes. Valid until
  /// the next call. Linear, not recursive.
  std::span<const NodeId> run(const Dag& dag, std::span<const NodeId> roots, std::size_t count);

 private:
  std::vector<std::uint8_t> listed_;  ///< by node
  std::vector<NodeId> pending_;
  std::vector<NodeId> order_;
};

}  // namespace srjit
