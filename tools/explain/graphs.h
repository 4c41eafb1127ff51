// The graphs of an explanation: expressions, passes, rules, derivatives.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "passes/dag.h"
#include "passes/rewrite_log.h"
#include "tools/explain/explanation.h"

namespace srjit::explain {

using Id = std::string;
using Ids = std::vector<Id>;

/// Gives the nodes of graphs their ids, in the order in which graphs are seen. Not thread-safe.
class NodeNames {
 public:
  /// The ids of the nodes of `dag`, by NodeId.
  Ids of(const Dag& dag);
  /// The operators of `dag` in order: ids, and texts as printDag() prints them.
  std::vector<std::pair<Id, std::string>> linesOf(const Dag& dag);

 private:
  NodeNumbers numbers_;
};

/// The graph that code is made of, and the ids of its nodes.
struct FinalGraph {
  Dag dag;
  Ids ids;  ///< by NodeId
};

/// What the roots of the pass `differentiate` are, in order.
std::vector<std::string> derivativeRootNames(std::span<const Expression> batch);

/// Runs the passes. Sets the members `sources`, `nodes`, `graphs` and, with parameters, `gradient`; else adds a notice.
/// Errors: kInvalid, a text that is not that of its expression.
Result<FinalGraph> addGraphs(const Request& request, Json& to);

}  // namespace srjit::explain
