// An expression as the text of one PTX kernel.
#pragma once

#include <string>

#include "ir/expression.h"

namespace srjit {

inline constexpr const char* kExpressionKernel = "expression";

/// The kernel (see ../ptx.h): constants are immediates, `parameters` are those of the expression. Throws
/// BenchFailure for an operator that the baselines lack.
std::string transpile(const Expression& expression);

}  // namespace srjit
