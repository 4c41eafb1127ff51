// Which expressions are compiled together: for programs, and for the commands that show kernels. What compiling takes
// grows faster than the length of one kernel, so kernels have a bounded length, and what all of them take is linear in
// the number of expressions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/kernels/code_length.h"
#include "ir/expression.h"
#include "runtime/engine_options.h"

namespace srjit {

/// Expressions a kernel of a GPU, at most. More share more of what they compute, and the columns they load.
inline constexpr std::size_t kExpressionsPerKernel = 64;

/// Expressions that are tried as one kernel.
struct KernelGroup {
  std::vector<std::uint32_t> expressions;
  std::size_t weight = 0;  ///< instructions per row, roughly (instructionsOf())
};

struct KernelGroups {
  std::vector<KernelGroup> groups;
  std::vector<std::uint32_t> too_long;  ///< expressions that are in none, in the order given
};

/// Divides the expressions whose numbers are in `order` into kernels of neighbours there. One of more than `longest`
/// (deviceCodeLength()) is too long.
KernelGroups groupForKernels(std::span<const Expression> expressions, std::span<const std::uint32_t> order,
                             const CodeWeights& weights, std::size_t longest = kMaxCodeLength);

/// Expressions a graph on a CPU, at most.
inline constexpr std::size_t kInterpretedPerBatch = 8;
inline constexpr std::size_t kCompiledPerBatch = 16;

/// Adjacent expressions that are one graph, by their places in `chosen`.
struct HostGroup {
  std::size_t first, last;
  bool compiled;
  std::size_t length = 0;  ///< of all (hostCodeLength())
};

/// Divides the chosen expressions into graphs. One of more than `longest` (hostCodeLength()) is not compiled, whatever
/// the tier, kInterpret or kCompile.
std::vector<HostGroup> groupForHost(std::span<const Expression> expressions, std::span<const std::uint32_t> chosen,
                                    Tier tier, std::size_t longest = kMaxCodeLength);

}  // namespace srjit
