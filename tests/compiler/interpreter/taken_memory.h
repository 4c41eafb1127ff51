// The memory that a thread takes by operator new, as a worker of a device counts it.
#pragma once

#include <cstddef>

namespace srjit {

/// Counts from its construction on, on the thread that constructs it; what is given back counts, too. One at a time.
class TakenMemory {
 public:
  TakenMemory();
  ~TakenMemory();
  TakenMemory(const TakenMemory&) = delete;
  TakenMemory& operator=(const TakenMemory&) = delete;

  /// Whether memory is counted: not where a sanitizer has operator new.
  static bool isCounted();
  std::size_t bytes() const;
};

}  // namespace srjit
