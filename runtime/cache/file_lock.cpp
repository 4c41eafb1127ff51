#include "runtime/cache/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

namespace srjit {

FileLock::~FileLock() {
  if (holds()) ::flock(file_.get(), LOCK_UN);
}

std::optional<FileLock> FileLock::take(const std::filesystem::path& file, const std::function<bool()>& gives_up) {
  constexpr std::chrono::milliseconds kPause(5);
  // O_NONBLOCK: opening a FIFO of that name would block.
  FileLock lock(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600));
  struct stat status{};
  if (!lock.holds() || ::fstat(lock.file_.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_uid != ::geteuid() || status.st_nlink != 1) {
    return FileLock();
  }
  while (::flock(lock.file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return FileLock();
    if (gives_up()) return std::nullopt;
    std::this_thread::sleep_for(kPause);
  }
  return lock;
}

// One byte per mark.
unsigned FileLock::marks() const noexcept {
  struct stat status{};
  return holds() && ::fstat(file_.get(), &status) == 0 ? static_cast<unsigned>(status.st_size) : 0;
}

void FileLock::mark() noexcept {
  if (holds()) static_cast<void>(::pwrite(file_.get(), "x", 1, marks()) == 1);
}

void FileLock::unmark() noexcept {
  if (holds()) static_cast<void>(::ftruncate(file_.get(), 0) == 0);
}

}  // namespace srjit
