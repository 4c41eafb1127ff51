// A file lock between processes, with marks that survive the death of the holder.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "runtime/platform/descriptor.h"

namespace srjit {

/// Holds flock(2) on a file, or nothing. The kernel releases it when the holding process ends, so a free lock has no
/// living holder. Threads of one process exclude each other, too. Movable.
///
/// The holder sets a mark before an operation that may crash the process and removes it afterwards. Marks in a lock
/// that was just taken are therefore the number of holders that crashed. Removing marks needs no disk space.
class FileLock {
 public:
  /// Holds nothing.
  FileLock() = default;
  FileLock(FileLock&&) = default;
  FileLock& operator=(FileLock&&) = default;
  /// Releases the lock, also in processes forked meanwhile.
  ~FileLock();

  /// Creates a missing file with access for its owner only, and waits for the lock until `gives_up()`;
  /// then returns nothing. The lock holds nothing where the file cannot be written or locked, as on a read-only disk.
  /// It also holds nothing where the name is a link, no regular file, another user's file, or a file with several hard
  /// links, since marks would change a file that is not a lock.
  static std::optional<FileLock> take(const std::filesystem::path& file, const std::function<bool()>& gives_up);

  bool holds() const noexcept { return file_.isOpen(); }

  /// The number of marks; 0 for a lock that holds nothing.
  unsigned marks() const noexcept;
  /// Adds a mark. Best effort: does nothing if the lock holds nothing, or on a full disk.
  void mark() noexcept;
  /// Removes all marks.
  void unmark() noexcept;

 private:
  explicit FileLock(int descriptor) noexcept : file_(descriptor) {}
  Descriptor file_;
};

}  // namespace srjit
