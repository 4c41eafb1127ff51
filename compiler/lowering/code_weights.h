// How long the code of operators and expressions is: which operators have short code, what an expression costs, and
// which expressions should stand in the same kernel.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/numeric.h"
#include "ir/op.h"
#include "ir/population.h"

namespace srjit {

/// The kind of processor that code runs on.
enum class TargetKind : std::uint8_t { kDevice, kHost };

/// Approximate number of instructions of an operator for one row, counted in its row of ops.def and in the programs of
/// its functions. A host divides and takes roots in one instruction, and has no instructions for functions.
unsigned codeWeight(Op op, Precision precision, Math math, TargetKind target = TargetKind::kDevice);
/// codeWeight() of every operator, by its number.
using CodeWeights = std::array<std::uint32_t, kMostOps>;
CodeWeights codeWeights(Precision precision, Math math, TargetKind target = TargetKind::kDevice);

/// Expressions whose code is longer are not compiled: LLVM's and the assembler's time for one kernel grows faster than
/// its length. Engines interpret them; the commands that show kernels refuse them.
inline constexpr std::size_t kMaxCodeLength = 4096;

/// Instructions of the operators for one row on a GPU, roughly.
std::size_t instructionsOf(const ExpressionView& expression, const CodeWeights& weights);
/// The length on a GPU: the number of tokens, where an operator counts as its instructions, but as at least one.
std::size_t deviceCodeLength(const ExpressionView& expression, const CodeWeights& weights);
/// The length on a CPU, where functions are calls: tokens.
inline std::size_t hostCodeLength(const ExpressionView& expression) { return expression.size(); }

/// The `chosen` expressions in an order in which a kernel of adjacent ones computes common subexpressions once: those
/// that have costly subtrees in common stand side by side. They are sorted by the hashes of their most costly subtrees
/// (codeWeight()) that occur in another expression, too, and where those are equal as `chosen` has them. Subtrees with
/// parameters are never common. The same for the same expressions, on every machine and number of threads; in parallel
/// on the calling thread's arena, linear in the tokens but for the sorting.
std::vector<std::uint32_t> orderedBySharing(const Population& expressions, std::span<const std::uint32_t> chosen,
                                            Precision precision, Math math);

}  // namespace srjit
