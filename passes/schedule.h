// Evaluation order (R. Sethi, J. D. Ullman, "The Generation of Optimal Code for Arithmetic Expressions", JACM 17(4),
// 1970).
#pragma once

#include <cstdint>
#include <vector>

#include "passes/dag.h"

namespace srjit {

/// For every node, the number of registers that its evaluation needs if the operand that needs most is evaluated first
/// (the Sethi-Ullman number): 0 for a leaf, which is read where it is used; at least 1 for an operator. Shared nodes
/// count at every use, as if the graph were a forest. Linear, not recursive.
std::vector<std::uint32_t> registerNeeds(const Dag& dag);

}  // namespace srjit
