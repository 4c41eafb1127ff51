// Which subtrees of a population are evaluated once, and the programs that are left.
#pragma once

#include "tools/bench/baselines/stack_program.h"

namespace srjit {

struct CachePlan {
  /// First a program for each cached column, then one for each expression, which reads them as tokens kCached.
  StackPrograms programs;
  std::size_t cached = 0;
  std::size_t tokens = 0;   ///< of the expressions as they were given
  std::size_t covered = 0;  ///< those of them that are part of a cached subtree
};

/// Finds equal subtrees by hashing from the leaves up; parameters of two expressions are never equal. Of those that
/// occur more than once, the largest are cached: not what lies inside of them, unless it occurs elsewhere, too. At most
/// `max_cached`: those that save the most tokens. Linear in the tokens. Throws BenchFailure as stackPrograms() does.
CachePlan planSubtreeCache(std::span<const Expression> expressions, std::size_t max_cached);

}  // namespace srjit
