// Allocations that fail on demand, in the whole test program; not under a sanitizer, which has allocations of its own.
#pragma once

#include <cstddef>

namespace srjit {

#ifdef SRJIT_SANITIZED
inline constexpr bool kMemoryCanFail = false;
#else
inline constexpr bool kMemoryCanFail = true;
#endif

/// While it exists, the n-th (from 1) `operator new` of exactly `bytes` bytes throws std::bad_alloc, on any thread; not
/// one that asks for an alignment. One object at a time.
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
