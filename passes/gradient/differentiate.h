// Derivatives as nodes of the same graph.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "passes/dag.h"
#include "passes/gradient/graph_domain.h"

namespace srjit {

/// Reverse accumulation (S. Linnainmaa, BIT 16(2), 1976; A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed.,
/// 2008, 3.2) over the cells dx, dy and dz of ops.def: one sweep from the root down adds the derivatives by all wanted
/// nodes, in a number of nodes that is linear in those of the root, however many are wanted. Keeps its working memory
/// between calls. Not thread-safe.
class Differentiator {
 public:
  static constexpr std::uint32_t kNotWanted = ~0U;

  /// The nodes that `root` needs, each after its operands, and by which of them to differentiate.
  struct Source {
    NodeId root;
    std::span<const NodeId> members;
  };

  /// `wanted(id)` of a member is kNotWanted, or the index in `derivatives` of the derivative by it; the sweep ends
  /// there. A derivative by nodes that `root` does not depend on is the constant 0. Where an operator's derivative is 0
  /// everywhere but at jumps, as that of floor, nothing flows through it, not even NaN.
  template <class Wanted>
  void run(const Source& source, const graph::NodeMaker& maker, const Wanted& wanted, std::span<NodeId> derivatives) {
    begin(source, maker, derivatives);
    for (const NodeId id : source.members) setWanted(id, wanted(id));
    sweep(source, maker, derivatives);
  }

 private:
  static constexpr NodeId kNone = ~NodeId{0};

  void begin(const Source& source, const graph::NodeMaker& maker, std::span<NodeId> derivatives);
  void setWanted(NodeId id, std::uint32_t index) { wanted_[id] = index; }
  void sweep(const Source& source, const graph::NodeMaker& maker, std::span<NodeId> derivatives);
  void pass(NodeId id, const graph::NodeMaker& maker);
  void add(NodeId id, NodeId contribution, const graph::NodeMaker& maker);

  // By node; stale but for members of the current call:
  std::vector<std::uint32_t> wanted_;
  std::vector<std::uint8_t> depends_;  ///< whether it depends on a wanted node
  std::vector<NodeId> adjoints_;       ///< the derivative of the root by it, as far as its users are done
};

}  // namespace srjit
