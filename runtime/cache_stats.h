// Counters of the kernel cache.
#pragma once

#include <cstdint>
#include <string>

namespace srjit {

/// Every request for a kernel counts as a memory hit, a disk hit, a miss, or a wait. A request whose wait brought no
/// image counts again, by its final outcome.
struct CacheStats {
  std::uint64_t memory_hits = 0, disk_hits = 0, misses = 0;  ///< since the cache was opened
  std::uint64_t waits = 0;  ///< requests that waited for another request to compile the same key
  std::uint64_t memory_images = 0, memory_bytes = 0;
  std::uint64_t disk_images = 0, disk_bytes = 0;
  std::uint64_t evictions = 0, damaged = 0;
  double compile_seconds = 0;  ///< core seconds spent on the misses
  double saved_seconds = 0;    ///< core seconds that the images of the hits took to compile
  std::string disk_fault;  ///< why the disk is not used, or why the last read or write failed; empty without a fault
};

}  // namespace srjit
