// Which expressions are compiled together, for programs and for the commands that show kernels. Compile time grows
// superlinearly with the length of a kernel. Bounded kernels keep the total linear in the number of expressions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/lowering/code_weights.h"
#include "runtime/engine_options.h"
#include "runtime/evaluation/program_source.h"

namespace srjit {

/// Maximum number of expressions per GPU kernel. Expressions of one kernel share common subexpressions and loads of
/// columns.
inline constexpr std::size_t kExpressionsPerKernel = 64;

/// Expressions that form one kernel.
struct KernelGroup {
  std::vector<std::uint32_t> expressions;
  std::size_t weight = 0;  ///< estimated instructions per row (instructionsOf())
};

struct KernelGroups {
  std::vector<KernelGroup> groups;
  std::vector<std::uint32_t> too_long;  ///< expressions in no kernel, in the given order
};

/// Divides the expressions whose numbers are in `order` into kernels of adjacent ones. An expression of more than
/// `longest` (deviceCodeLength()) is too long.
KernelGroups groupForKernels(const ProgramSource& source, std::span<const std::uint32_t> order,
                             const CodeWeights& weights, std::size_t longest = kMaxCodeLength);

/// Maximum number of expressions, or their outputs if there is more than one expression, per graph on a CPU.
inline constexpr std::size_t kInterpretedPerBatch = 8;
inline constexpr std::size_t kCompiledPerBatch = 16;

/// Adjacent expressions that form one graph.
struct HostGroup {
  std::uint32_t first, last;
  bool compiled;
  std::size_t length = 0;  ///< total of the group (hostCodeLength())
};

/// Divides all expressions into graphs. An expression of more than `longest` (hostCodeLength()) is interpreted in
/// either tier, kInterpret or kCompile.
std::vector<HostGroup> groupForHost(const ProgramSource& source, Tier tier, std::size_t longest = kMaxCodeLength);

}  // namespace srjit
