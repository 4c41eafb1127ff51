// The graph of one expression, in the memory of what made it.
#pragma once

#include <cstdint>
#include <span>

#include "passes/dag.h"

namespace srjit {

/// What ExpressionOptimizer leaves. Valid until its next run.
struct ExpressionGraph {
  const Dag& dag;  ///< may have dead nodes, and has constants as such
  NodeId root;
  /// The nodes that the root needs, each after its operands. In the order of evaluation (passes/schedule.h) if values
  /// may have to be kept meanwhile.
  std::span<const NodeId> members;
  std::span<const std::uint32_t> uses;  ///< by node: by members, and by the root's being one
};

}  // namespace srjit
