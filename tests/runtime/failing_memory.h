// Allocations that fail on demand, in the whole test program.
#pragma once

#include <cstddef>

namespace srjit {

/// While it lives, the n-th `operator new` of exactly `bytes` bytes throws std::bad_alloc, on whatever thread. One at a
/// time.
class FailingMemory {
 public:
  FailingMemory(std::size_t bytes, int n);
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;
  ~FailingMemory();

  /// Whether that happened.
  bool failed() const;
};

}  // namespace srjit
