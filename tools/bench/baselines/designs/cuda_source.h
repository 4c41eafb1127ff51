// Expressions as CUDA C++.
#pragma once

#include <span>
#include <string>

#include "ir/expression.h"
#include "ir/numeric.h"

namespace srjit {

inline constexpr const char* kPopulationKernel = "population";

/// One kernel, population(columns, rows, parameters, target, out, first), whose block row `y` evaluates the expression
/// with number `first + y` by a switch; parameters are those of all these expressions. The other parameters are as for
/// DeviceBaseline::launch(), with `out` for expression `first`. In `fast` a thread has one row, and functions are
/// approximated as operators.def says. Otherwise a thread goes on with further rows if the grid is smaller, and the
/// functions of functions.def are CUDA's own. Throws BenchFailure for an operator that the baselines lack.
std::string cudaSource(std::span<const Expression> expressions, Math math);

}  // namespace srjit
