// Which operators make numbers that are not finite, and which hide them: where derivatives may be 0 times infinity
// though the value is finite, as that of tanh(1 / x) at 0.
#pragma once

#include "ir/op.h"

namespace srjit {

/// Whether the value may be infinite or NaN over finite operands, by a pole, the end of its domain, or an overflow that
/// operands of 10,000 give.
bool mayBeExceptional(Op op) noexcept;

/// Whether the value may be finite over an infinite or NaN operand 0, 1 or 2.
bool mayHide(Op op, int operand) noexcept;

/// Whether the derivative by operand 0, 1 or 2 may be infinite or NaN where the value is finite, but not an operand.
bool mayFailBeside(Op op, int operand) noexcept;

}  // namespace srjit
