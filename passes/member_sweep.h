// The nodes that roots of the graph of one expression need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "passes/dag.h"

namespace srjit {

/// Finds them by a sweep over the graph from the last root down, without sorting: quicker than RootMembers where roots
/// need most of the nodes before them. Keeps its working memory between calls, whatever their graphs. Not thread-safe.
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

}  // namespace srjit
