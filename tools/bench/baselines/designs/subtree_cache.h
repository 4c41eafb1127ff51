// Selects subtrees of a population that are evaluated once, and builds the remaining programs.
#pragma once

#include "tools/bench/baselines/designs/stack_program.h"

namespace srjit {

struct CachePlan {
  /// First a program for each cached column, then one for each expression, which reads them as tokens kCached.
  StackPrograms programs;
  std::size_t cached = 0;
  std::size_t tokens = 0;   ///< tokens of the given expressions
  std::size_t covered = 0;  ///< of these, tokens inside of cached subtrees
};

/// Finds equal subtrees by hashing from the leaves up; parameters of two expressions are never equal. Caches the
/// largest subtrees that occur more than once; a subtree inside of a cached one is cached only if it also occurs
/// elsewhere. At most `max_cached`: those that save the most tokens. Linear in the tokens. Throws BenchFailure as
/// stackPrograms() does.
CachePlan planSubtreeCache(std::span<const Expression> expressions, std::size_t max_cached);

}  // namespace srjit
