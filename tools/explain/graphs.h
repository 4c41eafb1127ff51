// The graphs of an explanation: expressions, passes, rules, derivatives.
#pragma once

#include "passes/dag.h"
#include "tools/explain/names.h"
#include "tools/explain/request.h"

namespace srjit::explain {

/// The graph that code is made of, and the ids of its nodes.
struct FinalGraph {
  Dag dag;
  std::vector<Id> ids;  ///< by NodeId
};

/// Runs the passes. Fills in sources, nodes, graphs and gradient.
Result<FinalGraph> addGraphs(const Request& request, Explanation& to);

}  // namespace srjit::explain
