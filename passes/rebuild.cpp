#include "passes/rebuild.h"

#include <algorithm>

namespace srjit {

std::vector<std::uint8_t> reachableNodes(const Dag& dag) {
  std::vector<std::uint8_t> reachable(dag.size());
  for (const NodeId root : dag.roots()) reachable[root] = 1;
  for (NodeId id = static_cast<NodeId>(dag.size()); id-- > 0;) {
    if (reachable[id] == 0) continue;
    for (const NodeId operand : dag.node(id).inputs()) reachable[operand] = 1;
  }
  return reachable;
}

Dag withoutUnreachable(Dag dag) {
  if (std::ranges::count(reachableNodes(dag), 1) == static_cast<std::ptrdiff_t>(dag.size())) return dag;
  Dag to(dag.precision());
  rebuildInto(
      to, dag, [&](NodeId id) { return to.copyLeaf(dag, id); },
      [&](Op op, std::span<const NodeId> operands) { return to.apply(op, operands); });
  return to;
}

}  // namespace srjit
