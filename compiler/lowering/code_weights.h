// How long the code of each operator is. It tells operators with short code from those with long code, and what an
// expression costs.
#pragma once

#include <array>
#include <cstdint>

#include "ir/numeric.h"
#include "ir/op.h"

namespace srjit {

/// Approximate number of instructions of an operator for one row on a GPU, counted in its row of ops.def and in the
/// programs of its functions.
unsigned codeWeight(Op op, Precision precision, Math math);
/// codeWeight() of every operator, by its number.
using CodeWeights = std::array<std::uint32_t, kMostOps>;
CodeWeights codeWeights(Precision precision, Math math);

}  // namespace srjit
