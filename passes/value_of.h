// The value of an operator over numbers.
#pragma once

#include <span>

#include "ir/numeric.h"
#include "ir/op.h"

namespace srjit {

/// The value of `op` over operands that are numbers of `precision`, computed in that precision: what every kernel of
/// this precision gives, but for approximate operators in `fast` (hasApproximateStep() of passes/operator_facts.h).
double valueOf(Op op, std::span<const double> operands, Precision precision);

}  // namespace srjit
