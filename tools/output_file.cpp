#include "tools/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/Support/Signals.h>

#include "ir/lexer.h"
#include "tools/streams.h"

namespace srjit {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBuffer = 1 << 20;

Error cannotWrite(const std::string& path, int number) {
  return {Errc::kIo,
          fmt::format("cannot write {}: {}", path == "-" ? "standard output" : text::printable(path),
                      std::strerror(number)),
          {}};
}

/// A descriptor that is closed at the end.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  bool isOpen() const noexcept { return number_ >= 0; }
  int get() const noexcept { return number_; }

 private:
  int number_ = -1;
};

/// Writes all of `bytes`; 0 or errno.
int writeAll(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(file, bytes.data(), bytes.size());
    if (done < 0 && errno != EINTR) return errno;
    if (done > 0) bytes.remove_prefix(static_cast<std::size_t>(done));
  }
  return 0;
}

/// Where a path leads: a file behind all symbolic links, or an open descriptor of this process.
struct Destination {
  fs::path file;
  std::optional<int> descriptor;
};

/// The descriptor that `link` names, if `folder` is where the kernel lists those of this process. The link of such a
/// name cannot be followed: it is not where the bytes are, and opening it anew loses the offset and O_APPEND.
std::optional<int> descriptorOf(const fs::path& folder, const fs::path& link) {
  std::error_code failure;
  if (folder != fs::canonical("/proc/self/fd", failure) || failure) return std::nullopt;
  const std::string digits = link.filename().string();
  int number = 0;
  const auto [end, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (wrong != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

/// Follows symbolic links, also to a file that is not there. Sets errno where it fails.
std::optional<Destination> follow(const std::string& path) {
  constexpr int kMostLinks = 40;  // as Linux follows
  fs::path file = path;
  for (int links = 0; links <= kMostLinks; ++links) {
    struct stat facts{};
    if (lstat(file.c_str(), &facts) != 0 && errno != ENOENT) return std::nullopt;
    std::error_code failure;
    const fs::path folder = fs::canonical(file.has_parent_path() ? file.parent_path() : ".", failure);
    if (failure) {
      errno = failure.value();
      return std::nullopt;
    }
    if (!S_ISLNK(facts.st_mode)) return Destination{folder / file.filename(), std::nullopt};
    if (const auto descriptor = descriptorOf(folder, file)) return Destination{file, descriptor};
    const fs::path next = fs::read_symlink(file, failure);
    if (failure) {
      errno = failure.value();
      return std::nullopt;
    }
    file = folder / next;  // `next` alone if that is absolute
  }
  errno = ELOOP;
  return std::nullopt;
}

/// Whether renaming another file over this one would fail, or give it another owner.
bool mustStay(const std::string& file) {
  struct statx facts{};
  if (statx(AT_FDCWD, file.c_str(), AT_SYMLINK_NOFOLLOW, STATX_UID, &facts) != 0) return true;
  const bool is_mount_point = (facts.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  return is_mount_point || facts.stx_uid != geteuid();
}

/// A file name that signals remove. LLVM's handlers would take the place of signals that are ignored, such as SIGHUP
/// under nohup.
void removeOnSignal(const std::string& name) {
  std::vector<int> ignored;
  for (int number = 1; number < SIGRTMIN; ++number) {
    struct sigaction action{};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) ignored.push_back(number);
  }
  llvm::sys::RemoveFileOnSignal(name);
  for (const int number : ignored) std::signal(number, SIG_IGN);
}

/// A name in `folder` that no file has, for as long as it lives.
class TemporaryName {
 public:
  TemporaryName() = default;
  explicit TemporaryName(std::string name) : name_(std::move(name)) { removeOnSignal(name_); }
  TemporaryName(TemporaryName&& other) noexcept : name_(std::exchange(other.name_, {})) {}
  TemporaryName& operator=(TemporaryName&& other) noexcept {
    std::swap(name_, other.name_);
    return *this;
  }
  ~TemporaryName() {
    if (name_.empty()) return;
    unlink(name_.c_str());
    llvm::sys::DontRemoveFileOnSignal(name_);
  }
  bool empty() const noexcept { return name_.empty(); }
  const std::string& get() const noexcept { return name_; }
  /// The file has another name now.
  void forget() {
    llvm::sys::DontRemoveFileOnSignal(name_);
    name_.clear();
  }

 private:
  std::string name_;
};

/// Calls `take` with names in `folder` until one is free. The name is short: that of the output may be as long as names
/// can be. Sets errno where it fails.
template <class Take>
TemporaryName nameFor(const fs::path& folder, const Take& take) {
  for (unsigned attempt = 0;; ++attempt) {
    std::string name = (folder / fmt::format(".sr-jit-{}-{}.part", getpid(), attempt)).string();
    if (take(name)) return TemporaryName(std::move(name));
    if (errno != EEXIST) return {};
  }
}

std::string linkOf(int descriptor) { return fmt::format("/proc/self/fd/{}", descriptor); }

}  // namespace

struct OutputFile::State {
  std::string path;         // as the caller named it
  fs::path target;          // the file to replace or overwrite; empty where bytes go straight to their place
  Descriptor file;          // where bytes go
  Descriptor existing;      // the target, if it is there
  TemporaryName temporary;  // of `file`, while it has one
  bool stays = false;       // the target is overwritten
  int failure = 0;          // errno of the first failure
  std::string buffer;

  bool openTemporary(const fs::path& folder, mode_t mode) {
    if (access("/proc/self/fd", X_OK) == 0) {  // else it could not be named later
      file = Descriptor(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, mode));
      // Not every file system has unnamed files; the errors of those that lack them differ.
      if (file.isOpen() || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file.isOpen();
    }
    temporary = nameFor(folder, [&](const std::string& name) {
      file = Descriptor(::open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, mode));
      return file.isOpen();
    });
    return file.isOpen();
  }

  bool openReplacement() {
    struct stat facts{};
    const bool exists = stat(target.c_str(), &facts) == 0;
    if (!exists && errno != ENOENT) return false;
    if (!exists) return openTemporary(target.parent_path(), 0666);
    existing = Descriptor(::open(target.c_str(), O_WRONLY | O_CLOEXEC));
    if (!existing.isOpen()) return false;
    if (!S_ISREG(facts.st_mode)) {
      file = std::move(existing);
      target.clear();
      return true;
    }
    stays = mustStay(target.string());
    if (openTemporary(target.parent_path(), 0600)) {
      stays = stays || fchown(file.get(), static_cast<uid_t>(-1), facts.st_gid) != 0 ||
              fchmod(file.get(), facts.st_mode & 07777) != 0;
      return true;
    }
    const int refused = errno;
    stays = true;
    std::error_code failed;
    if (openTemporary(fs::temp_directory_path(failed), 0600)) return true;
    errno = refused;
    return false;
  }

  bool useDescriptor(int descriptor) {
    const int flags = fcntl(descriptor, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY) {
      errno = EBADF;
    } else if (flags >= 0) {
      std::fflush(stdout);
      file = Descriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    }
    return file.isOpen();
  }

  /// Opens `path`. Sets errno where that fails, as all functions here that return bool.
  bool open() {
    if (path == "-") return useDescriptor(STDOUT_FILENO);
    if (path.empty() || path.ends_with('/')) {
      file = Descriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC));  // fails, and says why
      return false;
    }
    const std::optional<Destination> destination = follow(path);
    if (!destination) return false;
    if (destination->descriptor) return useDescriptor(*destination->descriptor);
    target = destination->file;
    return openReplacement();
  }

  void flush() {
    if (failure == 0) failure = writeAll(file.get(), buffer);
    if (failure != 0 && target.empty()) endIfReaderIsGone(failure);
    buffer.clear();
  }

  bool name() {
    if (fsync(file.get()) != 0) return false;
    if (temporary.empty()) {
      // linkat() cannot replace an existing file, rename() can: so the file gets a temporary name first.
      temporary = nameFor(target.parent_path(), [&](const std::string& link) {
        return linkat(AT_FDCWD, linkOf(file.get()).c_str(), AT_FDCWD, link.c_str(), AT_SYMLINK_FOLLOW) == 0;
      });
      if (temporary.empty()) return false;
    }
    if (rename(temporary.get().c_str(), target.c_str()) != 0) return false;
    temporary.forget();
    return true;
  }

  /// Copies the bytes into the target. Room for them is taken first, so that a full disk is found before the old
  /// content is gone.
  bool overwrite() {
    const off_t size = lseek(file.get(), 0, SEEK_END);
    if (size < 0 || lseek(file.get(), 0, SEEK_SET) != 0) return false;
    if (size > 0 && fallocate(existing.get(), FALLOC_FL_KEEP_SIZE, 0, size) != 0 && errno != EOPNOTSUPP) return false;
    std::string block(kBuffer, '\0');
    for (;;) {
      const ssize_t got = read(file.get(), block.data(), block.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return false;
      if (got == 0) break;
      const int failed = writeAll(existing.get(), std::string_view(block).substr(0, static_cast<std::size_t>(got)));
      if (failed == 0) continue;
      errno = failed;
      return false;
    }
    return ftruncate(existing.get(), size) == 0 && fsync(existing.get()) == 0;
  }

  // Overwriting is also what is left where a rename fails for a reason that could not be seen before.
  bool put() { return (!stays && name()) || (existing.isOpen() && overwrite()); }
};

OutputFile::OutputFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
OutputFile::OutputFile(OutputFile&&) noexcept = default;
OutputFile& OutputFile::operator=(OutputFile&&) noexcept = default;
OutputFile::~OutputFile() = default;

Result<OutputFile> OutputFile::create(const std::string& path) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->buffer.reserve(kBuffer);
  if (!state->open()) return cannotWrite(path, errno);
  return OutputFile(std::move(state));
}

void OutputFile::write(std::string_view bytes) {
  if (state_->buffer.size() + bytes.size() > kBuffer) state_->flush();
  if (state_->failure == 0) state_->buffer.append(bytes);
}

Status OutputFile::publish() {
  state_->flush();
  if (state_->failure == 0 && !state_->target.empty() && !state_->put()) state_->failure = errno;
  if (state_->failure != 0) return cannotWrite(state_->path, state_->failure);
  return okStatus();
}

}  // namespace srjit
