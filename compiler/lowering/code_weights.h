// How long the code of each operator is. It tells operators with short code from those with long code, and what an
// expression costs.
#pragma once

#include <array>
#include <cstdint>

#include "compiler/lowering/target_kind.h"
#include "ir/numeric.h"
#include "ir/op.h"

namespace srjit {

/// Approximate number of instructions of an operator for one row, counted in its row of ops.def and in the programs of
/// its functions. A host divides and takes roots in one instruction, and has no instructions for functions.
unsigned codeWeight(Op op, Precision precision, Math math, TargetKind target = TargetKind::kDevice);
/// codeWeight() of every operator, by its number.
using CodeWeights = std::array<std::uint32_t, kMostOps>;
CodeWeights codeWeights(Precision precision, Math math, TargetKind target = TargetKind::kDevice);

}  // namespace srjit
