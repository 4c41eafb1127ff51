// Expressions as CUDA C++.
#pragma once

#include <span>
#include <string>

#include "ir/expression.h"

namespace srjit {

inline constexpr const char* kPopulationKernel = "population";

/// One kernel, population(columns, rows, parameters, target, out, first), whose block row `y` evaluates the expression
/// with number `first + y` by a switch; parameters are those of all these expressions. The other parameters are as for
/// DeviceBaseline::launch(), with `out` for expression `first`. Throws BenchFailure for an operator that the baselines
/// lack.
std::string cudaSource(std::span<const Expression> expressions);

}  // namespace srjit
