// Operators over constants: which of them a compiler may compute, and their values.
#pragma once

#include <span>

#include "ir/numeric.h"
#include "ir/op.h"
#include "passes/dag.h"

namespace srjit {

/// Facts about the elementary steps of an operator's row, derived from ops.def and functions.def.
struct RowFacts {
  bool library = false;      ///< some step is a library function, whose last bits differ between targets
  bool approximate = false;  ///< some step is approximate in fast f32 kernels: a quotient, a root, most functions
};
RowFacts factsOf(Op op) noexcept;

/// True if `op` has the same bits in every kernel of this precision and mode, and valueOf() has them, too: no step of
/// its row is a library function or approximate.
bool hasFixedBits(Op op, Precision precision, Math math) noexcept;

/// The value of `op` over operands that are numbers of `precision`: elementary steps in that precision, library
/// functions in double and then rounded once. A row's thresholds thus decide as they do in a kernel.
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
