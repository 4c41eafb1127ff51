// The order in which straight-line code computes a graph.
#pragma once

#include <vector>

#include "passes/dag.h"

namespace srjit {

/// The operators that the roots need, in a topological order that interleaves up to `ways` roots, one operator each in
/// turn; a root that is finished is replaced by the next. Within a root the order is ascending. An out-of-order
/// processor looks ahead by some hundreds of instructions, fewer than a chain of function calls has; interleaving puts
/// independent work into that window. Linear in the nodes and roots times `ways`; not recursive.
std::vector<NodeId> interleavedOrder(const Dag& dag, unsigned ways);

}  // namespace srjit
