// How long the straight-line code of an expression is, and how long it may be.
#pragma once

#include <cstddef>

#include "compiler/lowering/code_weights.h"
#include "ir/population.h"

namespace srjit {

/// Expressions whose code is longer are not compiled: LLVM's and the assembler's time for one kernel grows faster than
/// its length. Engines interpret them; the commands that show kernels refuse them.
inline constexpr std::size_t kMaxCodeLength = 4096;

/// Instructions of the operators for one row on a GPU, roughly; `weights` are those of codeWeights().
std::size_t instructionsOf(const ExpressionView& expression, const CodeWeights& weights);

/// The length on a GPU: the number of tokens, where an operator counts as its instructions, but as at least one.
std::size_t deviceCodeLength(const ExpressionView& expression, const CodeWeights& weights);

/// The length on a CPU, where functions are calls: tokens.
inline std::size_t hostCodeLength(const ExpressionView& expression) { return expression.size(); }

}  // namespace srjit
