// The nodes that roots of a graph need.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "passes/dag.h"

namespace srjit {

/// Sorts nodes that a traversal from a root met, which are nearly in descending order, ascending.
inline void sortMet(std::span<NodeId> nodes) {
  constexpr std::size_t kFew = 64;
  if (nodes.size() > kFew) {
    std::ranges::sort(nodes);
    return;
  }
  std::ranges::reverse(nodes);
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    const NodeId id = nodes[i];
    std::size_t place = i;
    for (; place > 0 && nodes[place - 1] > id; --place) nodes[place] = nodes[place - 1];
    nodes[place] = id;
  }
}

/// Keeps its working memory between calls, whatever their graphs. Not thread-safe.
class RootMembers {
 public:
  /// Lists the nodes from `first` on that `roots` need, and counts uses by these nodes and roots. The cost depends
  /// only on these nodes.
  void collect(const Dag& dag, std::span<const NodeId> roots, NodeId first = 0) {
    clear();
    uses_.resize(std::max(uses_.size(), dag.size()));
    const auto use = [&](NodeId id) {
      if (uses_[id]++ > 0) return;
      (id < first ? others_ : members_).push_back(id);
    };
    for (const NodeId root : roots) use(root);
    for (std::size_t i = 0; i < members_.size(); ++i) {
      for (const NodeId operand : dag.node(members_[i]).inputs()) use(operand);
    }
    sortMet(members_);
  }
  void clear() {
    for (const std::vector<NodeId>* used : {&members_, &others_}) {
      for (const NodeId id : *used) uses_[id] = 0;
    }
    members_.clear();
    others_.clear();
  }

  /// Ascending, so each after its operands. Valid until the next call.
  std::span<const NodeId> members() const noexcept { return members_; }
  /// By node.
  std::span<const std::uint32_t> uses() const noexcept { return uses_; }

 private:
  std::vector<NodeId> members_;
  std::vector<NodeId> others_;  ///< nodes before the first that are used
  std::vector<std::uint32_t> uses_;
};

}  // namespace srjit
