// Operators over constants: which of them a compiler may compute, and their values.
#pragma once

#include <span>

#include "ir/numeric.h"
#include "ir/op.h"
#include "passes/dag.h"

namespace srjit {

/// True if some step of the operator's row is approximate in fast f32 kernels: a quotient, a root, most functions.
/// Derived from ops.def and functions.def.
bool hasApproximateStep(Op op) noexcept;

/// True if `op` has the same bits in every kernel of this precision and mode, and valueOf() has them, too.
bool hasFixedBits(Op op, Precision precision, Math math) noexcept;

/// The value of `op` over operands that are numbers of `precision`, computed in that precision.
double valueOf(Op op, std::span<const double> operands, Precision precision);

/// Whether all operands are constants of `dag`.
inline bool areConstants(const Dag& dag, std::span<const NodeId> operands) noexcept {
  for (const NodeId operand : operands) {
    if (dag.node(operand).kind != Token::Kind::kConstant) return false;
  }
  return true;
}

/// valueOf() over operands that are constants of `dag`.
double foldedValue(const Dag& dag, Op op, std::span<const NodeId> operands);

}  // namespace srjit
