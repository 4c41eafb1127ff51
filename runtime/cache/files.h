// Files of the cache: whether they are trusted, and locks. Kernels are code that runs in this process, and an unkeyed
// checksum does not authenticate their writer. So a file is trusted only if no other user can have created or changed
// it.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "ir/error.h"
#include "runtime/platform/process.h"

namespace srjit {

/// Checks that the content of `directory` can be trusted. Precondition: `directory` is canonical (no links in its
/// name).
///
/// It must be owned by root or this user, and not be writable by group or others. The same holds for each directory
/// above it, as OpenSSH requires for keys, since who can rename one of them can replace it. Exceptions above:
/// - a directory with the sticky bit may be writable (/tmp): only owners can rename their entries there;
/// - a directory may be writable by its owner's private group (of the owner's name, without other members), as a umask
///   of 002 leaves it;
/// - in a user namespace, users outside of it count as root, since both have the same number there.
///
/// The check goes from the root down, since a checked name can no longer be replaced. If this user is root, only files
/// of root pass. Errors: kMachine, with the fault and its remedy.
Status checkTrustOfDirectory(const std::filesystem::path& directory);

/// Checks that `file` of a trusted directory, which `facts` were read of without following a link, may be read and
/// replaced: a regular file of this user or root with one hard link that group and others cannot write. Errors: as
/// above.
Status checkTrustOfFile(const std::filesystem::path& file, const struct stat& facts);

/// Creates the missing directories of a path with access for their owner only, whatever the umask.
std::error_code makePrivateDirectories(const std::filesystem::path& directory);

/// Fills `to`; false if the file ends before, or cannot be read.
bool readAll(int file, std::span<std::byte> to);
/// Writes all of `bytes`; 0 or errno.
int writeAll(int file, std::string_view bytes);
/// Resizes `bytes`. Where the kernel supports it (Linux 5.14), populates pages of new memory in one call: page faults
/// at first touch would take most of the time of reading a large image.
void resizeAtOnce(std::vector<std::byte>& bytes, std::size_t size);

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

  /// Creates a missing file with access for its owner only, and waits for the lock until `gives_up()`; then returns
  /// nothing. The lock holds nothing if the file cannot be written or locked, or if marks would change a file that is
  /// not a lock: a link, no regular file, another user's, or one with several hard links.
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
