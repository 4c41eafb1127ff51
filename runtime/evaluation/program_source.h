// The expressions of a program, and all else that its code is made from.
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

/// What code is made from. Immutable once a program has it; background work may keep it longer than the program lives.
struct ProgramSource {
  Precision precision = Precision::kF32;  ///< the engine's
  Math math = Math::kPrecise;
  Pipeline pipeline;
  std::vector<Expression> expressions;
  std::vector<std::size_t> parameter_offsets{0};  ///< one more than expressions
  std::uint32_t variables = 0;                    ///< the largest Expression::variableCount()
  std::size_t tokens = 0;                         ///< of all expressions
  bool group_by_sharing = true;                   ///< CompileOptions'
  std::shared_ptr<SubtreeReader> subtrees = {};   ///< that its graphs read; null: everything is computed

  void add(const Expression& expression);
  /// In parallel on the calling thread's arena.
  void add(std::span<const Expression> more);
};

}  // namespace srjit
