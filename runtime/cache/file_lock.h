// A lock that processes share by a file, and a mark that outlives its holder.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

namespace srjit {

/// Holds flock(2) on a file, or nothing. The system lets go of it when its holder dies, so a lock that can be had is a
/// lock that no living process holds. Threads of one process exclude each other, too. Movable.
///
/// A mark says that the holder tries what may kill it: who finds some in a lock that it has just taken knows how many
/// holders died so. Removing them needs no room on the disk.
class FileLock {
 public:
  /// Holds nothing.
  FileLock() = default;
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  /// Lets go of it also in processes that were forked meanwhile.
  ~FileLock();

  /// Makes the file, for its owner alone, if it is not there, and waits until nobody else holds the lock, or
  /// `gives_up()`: then there is none. Where the file cannot be written or locked, as on a disk that is read-only, the
  /// lock holds nothing; nor where the name is that of a link, of what is no regular file, of another user's file, or
  /// of one that has other names: marks would change what is not a lock.
  static std::optional<FileLock> take(const std::filesystem::path& file, const std::function<bool()>& gives_up);

  bool holds() const noexcept { return descriptor_ >= 0; }

  /// 0 of a lock that holds nothing.
  unsigned marks() const noexcept;
  /// One more. Best effort: nothing if the lock holds nothing, or on a full disk.
  void mark() noexcept;
  /// Removes all.
  void unmark() noexcept;

 private:
  explicit FileLock(int descriptor) noexcept : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

}  // namespace srjit
