// A lock that processes share by a file.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>

namespace srjit {

/// Holds flock(2) on a file, or nothing. The system lets go of it when its holder dies, so a lock that can be had is a
/// lock that no living process holds. Threads of one process exclude each other, too. Movable.
class FileLock {
 public:
  /// Holds nothing.
  FileLock() = default;
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

  /// Makes the file if it is not there, and waits until nobody else holds the lock, at most for `patience`: then there
  /// is none. Where the file cannot be made or locked, as on a disk that is read-only, the lock holds nothing.
  static std::optional<FileLock> take(const std::filesystem::path& file, std::chrono::milliseconds patience);

  bool holds() const noexcept { return descriptor_ >= 0; }

 private:
  explicit FileLock(int descriptor) noexcept : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

}  // namespace srjit
