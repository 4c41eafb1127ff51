// The expressions of a program, and all other input of code generation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/numeric.h"
#include "passes/pass.h"
#include "runtime/evaluation/subtree_reader.h"

namespace srjit {

/// Input of code generation. Immutable once a program has it; background work may keep it beyond the program's
/// lifetime.
struct ProgramSource {
  Precision precision = Precision::kF32;  ///< the engine's
  Math math = Math::kPrecise;
  Pipeline pipeline;
  std::vector<Expression> expressions;
  std::vector<std::size_t> parameter_offsets{0};  ///< expressions.size() + 1 entries
  std::uint32_t variables = 0;                    ///< the largest Expression::variableCount()
  std::size_t tokens = 0;                         ///< of all expressions
  bool group_by_sharing = true;                   ///< CompileOptions::group_by_sharing
  std::shared_ptr<SubtreeReader> subtrees = {};   ///< kept subtrees that its graphs read; null: everything is computed

  void add(const Expression& expression);
  /// Appends expressions, in parallel on the calling thread's arena.
  void add(std::span<const Expression> more);
};

}  // namespace srjit
