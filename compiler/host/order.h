// The order in which straight-line code computes a graph.
#pragma once

#include <vector>

#include "passes/dag.h"

namespace srjit {

/// The operators that the roots need, every one after its operands: up to `ways` roots take turns, one operator each,
/// and a root that is done makes room for the next. Within a root the order is ascending. A processor looks ahead by
/// some hundreds of instructions, fewer than a chain of functions has: with turns it finds independent work in that
/// window. Linear in the nodes and roots times `ways`; not recursive.
std::vector<NodeId> interleavedOrder(const Dag& dag, unsigned ways);

}  // namespace srjit
