// Which node each operation of a group belongs to. Internal to the direct tier.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "passes/dag.h"

namespace srjit::direct {

/// Pairs of operations and nodes, filled in while operations are selected; an operation may have several nodes, or
/// none.
class OperationNodes {
 public:
  void clear() { pairs_.clear(); }
  /// The operations from `first` to before `end` belong to `node`.
  void add(std::uint32_t first, std::uint32_t end, NodeId node) {
    for (std::uint32_t at = first; at < end; ++at) pairs_.emplace_back(at, node);
  }
  /// The nodes of each of the `count` operations: ascending, each once.
  std::vector<std::vector<NodeId>> byOperation(std::size_t count) const {
    std::vector<std::vector<NodeId>> nodes(count);
    for (const auto& [operation, node] : pairs_) nodes[operation].push_back(node);
    for (std::vector<NodeId>& list : nodes) {
      std::ranges::sort(list);
      list.erase(std::ranges::unique(list).begin(), list.end());
    }
    return nodes;
  }

 private:
  std::vector<std::pair<std::uint32_t, NodeId>> pairs_;
};

}  // namespace srjit::direct
