// Which operands the partial derivatives of ops.def contain.
#pragma once

#include <cstdint>

#include "ir/op.h"

namespace srjit {

/// The operands that a partial derivative contains.
struct OperandSet {
  std::uint8_t bits = 0;  ///< operand k is bit k
  bool is_zero = false;   ///< it is the number 0, as that of a step function

  constexpr bool has(int operand) const noexcept { return (bits >> operand & 1U) != 0; }
};

/// The set of the partial derivative of `op` by operand 0, 1 or 2; of one past its arity, zero.
OperandSet operandsOfPartial(Op op, int operand) noexcept;

}  // namespace srjit
