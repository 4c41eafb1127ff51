// The order of evaluation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "passes/dag.h"

namespace srjit {

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
