// Facts about the kernel cache, for programs and people.
#pragma once

#include <cstdint>
#include <string>

namespace srjit {

/// Every request for a kernel is a memory hit, a disk hit, a miss, or a wait; one that waited in vain is also what it
/// was then.
struct CacheStats {
  std::uint64_t memory_hits = 0, disk_hits = 0, misses = 0;  ///< since the cache was opened
  std::uint64_t waits = 0;  ///< requests that waited for another's compilation of the same key
  std::uint64_t memory_images = 0, memory_bytes = 0;
  std::uint64_t disk_images = 0, disk_bytes = 0;
  std::uint64_t evictions = 0, damaged = 0;
  double compile_seconds = 0;  ///< of one core, for the misses
  double saved_seconds = 0;    ///< what the hits had cost when they were made
  std::string disk_fault;  ///< why the disk is not used, or was not to be read or written last; empty if all is well
};

}  // namespace srjit
