// The ids of nodes.
#pragma once

#include <utility>
#include <vector>

#include "ir/text.h"
#include "passes/dag.h"
#include "passes/node_numbers.h"
#include "tools/explain/explanation.h"

namespace srjit::explain {

/// Gives the nodes of graphs their ids, in the order in which graphs are seen. Not thread-safe.
class NodeNames {
 public:
  /// `columns` are the names that NodeFacts::infix has; none: x0, x1, ...
  explicit NodeNames(ColumnNames columns = {}) : columns_(std::move(columns)) {}

  /// The ids of the nodes of `dag`, by NodeId.
  std::vector<Id> of(const Dag& dag);
  /// The operators of `dag` as printDag() prints them, and its roots as "root 0".
  Graph print(const Dag& dag);
  /// What is known of each node of `dag` by itself, by NodeId.
  std::vector<NodeFacts> factsOf(const Dag& dag);

 private:
  ColumnNames columns_;
  NodeNumbers numbers_;
};

}  // namespace srjit::explain
