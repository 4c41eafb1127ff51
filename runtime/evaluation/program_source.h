// The expressions of a program, and how graphs are made of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/numeric.h"
#include "passes/pass.h"
#include "runtime/evaluation/subtree_reader.h"

namespace srjit {

/// Input of code generation: values alone. Constant once a program has it. Background work may keep it beyond the
/// program's lifetime. Invariant, kept by add(): the offsets, `variables` and `tokens` are those of the expressions.
struct ProgramSource {
  Precision precision = Precision::kF32;  ///< the engine's
  Math math = Math::kPrecise;
  Pipeline pipeline;
  std::vector<Expression> expressions;
  std::vector<std::size_t> parameter_offsets{0};  ///< expressions.size() + 1 entries
  std::uint32_t variables = 0;                    ///< the largest Expression::variableCount()
  std::size_t tokens = 0;                         ///< of all expressions
  bool group_by_sharing = true;                   ///< CompileOptions::group_by_sharing

  void add(const Expression& expression);
  /// Appends expressions, in parallel on the calling thread's arena.
  void add(std::span<const Expression> more);
};

/// What graphs are made of. Both must outlive the work.
struct GraphSource {
  const ProgramSource& program;
  SubtreeReader* subtrees = nullptr;  ///< that graphs read and count; null: everything is computed
};

}  // namespace srjit
