// The ids of nodes.
#pragma once

#include <vector>

#include "passes/dag.h"
#include "passes/node_numbers.h"
#include "tools/explain/explanation.h"

namespace srjit::explain {

/// Gives the nodes of graphs their ids, in the order in which graphs are seen. Not thread-safe.
class NodeNames {
 public:
  /// The ids of the nodes of `dag`, by NodeId.
  std::vector<Id> of(const Dag& dag);
  /// The operators of `dag` as printDag() prints them, and its roots as "root 0".
  Graph print(const Dag& dag);
  /// What is known of each node of `dag` by itself, by NodeId.
  std::vector<NodeFacts> factsOf(const Dag& dag);

 private:
  NodeNumbers numbers_;
};

}  // namespace srjit::explain
