// The graphs of an explanation: expressions, passes, rules, derivatives.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "passes/dag.h"
#include "tools/explain/names.h"
#include "tools/explain/request.h"

namespace srjit::explain {

/// The graph that code is made of, and the ids of its nodes.
struct FinalGraph {
  Dag dag;
  std::vector<Id> ids;  ///< by NodeId
};

/// What the roots of the pass `differentiate` are, in order.
std::vector<std::string> derivativeRootNames(std::span<const Expression> batch);

/// Runs the passes. Fills in sources, nodes, graphs and gradient. Errors: kInvalid, a text that is not that of its
/// expression.
Result<FinalGraph> addGraphs(const Request& request, Explanation& to);

}  // namespace srjit::explain
