// What the rows of ops.def and functions.def say about an operator: which steps are approximate, which operands its
// derivatives contain, and where derivatives may be 0 times infinity though the value is finite, as that of tanh(1 / x)
// at 0. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/op.h"

namespace srjit {

/// Whether some step of the operator's row is approximate in fast f32 kernels: a quotient, a root, most functions. All
/// other kernels have the bits of valueOf() (passes/value_of.h).
bool hasApproximateStep(Op op) noexcept;

/// The operands that the partial derivative of `op` by operand 0, 1 or 2 contains: bit k is operand k. None if it is
/// the number 0, as that of a step function, or by one past the arity.
std::optional<std::uint8_t> operandsOfPartial(Op op, int operand) noexcept;

/// Whether the value may be infinite or NaN over finite operands, by a pole, the end of its domain, or an overflow that
/// operands of 10,000 give.
bool mayBeExceptional(Op op) noexcept;

/// Whether the value may be finite over an infinite or NaN operand 0, 1 or 2.
bool mayHide(Op op, int operand) noexcept;

/// Whether the derivative by operand 0, 1 or 2 may be infinite or NaN where the value is finite, but not an operand.
bool mayFailBeside(Op op, int operand) noexcept;

}  // namespace srjit
