#include "runtime/cache/files.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include <fmt/format.h>

namespace srjit {
namespace {

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH, kModeBits = 07777;
constexpr const char* kChooseAnother = "choose another directory (--cache-dir, SRJIT_CACHE_DIR)";

Error fault(const std::filesystem::path& path, std::string_view what, std::string_view remedy) {
  return {Errc::kMachine, fmt::format("the kernel cache is not used: {} {}; {}", path.string(), what, remedy), {}};
}

Error isWritable(const std::filesystem::path& path, const struct stat& facts) {
  // Directories of root, and those with the sticky bit, are shared, so changing their mode is no remedy.
  const bool can_change_mode = facts.st_uid == geteuid() && (facts.st_mode & S_ISVTX) == 0;
  return fault(
      path,
      fmt::format("may be written by other users (mode {:04o}), who could replace kernels", facts.st_mode & kModeBits),
      can_change_mode ? fmt::format("remove it, or 'chmod go-w {}'", path.string()) : kChooseAnother);
}

Error belongsTo(const std::filesystem::path& path, uid_t owner) {
  return fault(path, fmt::format("belongs to user {}, who could replace kernels", owner), kChooseAnother);
}

Error isUnreadable(const std::filesystem::path& path, int number) {
  return {
      Errc::kMachine, fmt::format("cannot inspect {}: {}", path.string(), std::generic_category().message(number)), {}};
}

/// Whether `user` is the overflow id, which a user namespace shows for all users outside of it, the real root included.
bool isOutside(uid_t user) {
  uid_t overflow = 0;
  if (!(std::ifstream("/proc/sys/kernel/overflowuid") >> overflow) || user != overflow) return false;
  std::ifstream map("/proc/self/uid_map");
  std::uint64_t inside = 0, outside = 0, count = 0;
  bool any = false;
  while (map >> inside >> outside >> count) {
    any = true;
    if (user >= inside && user - inside < count) return false;
  }
  return any;
}

bool isOwn(uid_t user) { return user == 0 || user == geteuid(); }

/// Whether `owner` is the only member of `group`, by the group's name and member list.
bool isPrivateGroup(gid_t group, uid_t owner) {
  std::array<char, 16384> names{}, members{};
  struct passwd user_buffer{}, *user = nullptr;
  struct group group_buffer{}, *found = nullptr;
  if (getpwuid_r(owner, &user_buffer, names.data(), names.size(), &user) != 0 || user == nullptr ||
      getgrgid_r(group, &group_buffer, members.data(), members.size(), &found) != 0 || found == nullptr) {
    return false;
  }
  const std::string_view name = user->pw_name;
  if (found->gr_name != name || user->pw_gid != group) return false;
  for (char** member = found->gr_mem; *member != nullptr; ++member) {
    if (*member != name) return false;
  }
  return true;
}

/// Whether users other than the owner can rename the entries of a directory above the cache's.
bool isOpenToOthers(const struct stat& facts) {
  if ((facts.st_mode & kOthersWrite) == 0 || (facts.st_mode & S_ISVTX) != 0) return false;
  return (facts.st_mode & S_IWOTH) != 0 || !isPrivateGroup(facts.st_gid, facts.st_uid);
}

}  // namespace

Status checkTrustOfDirectory(const std::filesystem::path& directory) {
  std::filesystem::path place;
  for (const std::filesystem::path& name : directory) {
    place /= name;
    struct stat facts{};
    if (lstat(place.c_str(), &facts) != 0) return isUnreadable(place, errno);
    if (!S_ISDIR(facts.st_mode)) return isUnreadable(place, ENOTDIR);
    const bool is_last = place == directory;
    if (!isOwn(facts.st_uid) && (is_last || !isOutside(facts.st_uid))) return belongsTo(place, facts.st_uid);
    if (is_last ? (facts.st_mode & kOthersWrite) != 0 : isOpenToOthers(facts)) return isWritable(place, facts);
  }
  return okStatus();
}

Status checkTrustOfFile(const std::filesystem::path& file, const struct stat& facts) {
  const std::string remedy = fmt::format("remove it, or {}", kChooseAnother);
  if (S_ISLNK(facts.st_mode)) return fault(file, "is a symbolic link", remedy);
  if (!S_ISREG(facts.st_mode)) return fault(file, "is no regular file", remedy);
  if (!isOwn(facts.st_uid)) return belongsTo(file, facts.st_uid);
  if ((facts.st_mode & kOthersWrite) != 0) {  // it may already have been changed, so a change of mode is no remedy
    return fault(file, fmt::format("may be written by other users (mode {:04o})", facts.st_mode & kModeBits), remedy);
  }
  if (facts.st_nlink > 1) return fault(file, fmt::format("has {} names (hard links)", facts.st_nlink), remedy);
  return okStatus();
}

std::error_code makePrivateDirectories(const std::filesystem::path& directory) {
  constexpr mode_t kMode = S_IRWXU;
  const auto make = [&] { return mkdir(directory.c_str(), kMode) == 0 || errno == EEXIST ? 0 : errno; };
  int failure = make();
  if (failure == ENOENT && directory.has_parent_path() && directory.parent_path() != directory) {
    if (const std::error_code above = makePrivateDirectories(directory.parent_path())) return above;
    failure = make();
  }
  return {failure, std::generic_category()};
}

bool readAll(int file, std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t done = ::read(file, to.data(), to.size());
    if (done == 0 || (done < 0 && errno != EINTR)) return false;
    if (done > 0) to = to.subspan(static_cast<std::size_t>(done));
  }
  return true;
}

void resizeAtOnce(std::vector<std::byte>& bytes, std::size_t size) {
  if (size > bytes.capacity()) {
    bytes.clear();
    bytes.reserve(size);
#ifdef MADV_POPULATE_WRITE
    constexpr std::size_t kPage = 4096;
    const std::size_t before = (kPage - reinterpret_cast<std::uintptr_t>(bytes.data()) % kPage) % kPage;
    if (before + kPage <= size) madvise(bytes.data() + before, (size - before) / kPage * kPage, MADV_POPULATE_WRITE);
#endif
  }
  bytes.resize(size);
}

int writeAll(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(file, bytes.data(), bytes.size());
    if (done == 0) return EIO;
    if (done > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(done));
    } else if (errno == EAGAIN) {  // a pipe that somebody made non-blocking
      pollfd waiting{file, POLLOUT, 0};
      poll(&waiting, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

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
