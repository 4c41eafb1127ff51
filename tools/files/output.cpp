#include "tools/files/output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/xattr.h>
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

#include "compiler/lowering/llvm_scope.h"
#include "tools/files/read.h"
#include "tools/report.h"
#include "tools/streams.h"

namespace srjit {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBuffer = 1 << 20;

Error cannotWrite(const std::string& path, int number) {
  return {
      Errc::kIo,
      fmt::format("cannot write {}: {}", path == "-" ? "standard output" : displayName(path), std::strerror(number)),
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
    if (done > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(done));
    } else if (done == 0) {
      return EIO;
    } else if (errno == EAGAIN) {  // a pipe that somebody made non-blocking
      pollfd waiting{file, POLLOUT, 0};
      poll(&waiting, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

/// The resolved target of a path: a file behind all symbolic links, or an open descriptor of this process.
struct Destination {
  fs::path folder, name;
  std::optional<int> descriptor;
};

/// The descriptor that `link` names, if `folder` is where the kernel lists those of this process. The link of such a
/// name cannot be followed: it is not where the bytes are, and opening it anew loses the offset and O_APPEND.
std::optional<int> descriptorOf(const fs::path& folder, const fs::path& link) {
  std::error_code failure;
  const fs::path descriptors = fs::canonical("/proc/self/fd", failure);
  if (failure || fs::canonical(folder, failure) != descriptors) return std::nullopt;
  const std::string digits = link.filename().string();
  int number = 0;
  const auto [end, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (wrong != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

/// Whether a link of this owner in this directory may redirect the write: somebody else's in a directory
/// where everyone may create links. Linux refuses to follow it where fs.protected_symlinks is set (proc(5)).
bool isForeignLink(const struct stat& link, const struct stat& folder) {
  constexpr mode_t kShared = S_ISVTX | S_IWOTH;
  return (folder.st_mode & kShared) == kShared && link.st_uid != geteuid() && link.st_uid != folder.st_uid;
}

/// Follows symbolic links, also to a file that is not there. Sets errno where it fails.
std::optional<Destination> follow(const std::string& path) {
  constexpr int kMostLinks = 40;  // as Linux follows
  fs::path file = path;
  for (int links = 0; links <= kMostLinks; ++links) {
    const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
    struct stat facts{}, folder_facts{};
    if (lstat(file.c_str(), &facts) != 0 && errno != ENOENT) return std::nullopt;
    if (stat(folder.c_str(), &folder_facts) != 0) return std::nullopt;
    if (!S_ISLNK(facts.st_mode)) return Destination{folder, file.filename(), std::nullopt};
    if (const auto descriptor = descriptorOf(folder, file)) return Destination{folder, file.filename(), descriptor};
    if (isForeignLink(facts, folder_facts)) {
      errno = EACCES;
      return std::nullopt;
    }
    std::error_code failure;
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

/// Whether renaming another file over this one would fail, or lose its owner or its access control list.
bool mustStay(int file) {
  struct statx facts{};
  if (statx(file, "", AT_EMPTY_PATH, STATX_UID, &facts) != 0) return true;
  const bool is_mount_point = (facts.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  const bool has_list = fgetxattr(file, "system.posix_acl_access", nullptr, 0) > 0;
  return is_mount_point || has_list || facts.stx_uid != geteuid();
}

/// Makes signals remove the file of this name. LLVM's handlers would take the place of signals that are ignored, such
/// as SIGHUP under nohup, and of SIGUSR1, which would no longer end the process.
void removeOnSignal(const std::string& name) {
  std::vector<std::pair<int, struct sigaction>> kept;
  for (int number = 1; number < SIGRTMIN; ++number) {
    struct sigaction action{};
    if (sigaction(number, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_IGN || number == SIGUSR1) kept.emplace_back(number, action);
  }
  const LlvmScope scope;
  llvm::sys::RemoveFileOnSignal(name);
  for (const auto& [number, action] : kept) sigaction(number, &action, nullptr);
}

/// Signals no longer remove it.
void keepOnSignal(const std::string& name) {
  const LlvmScope scope;
  llvm::sys::DontRemoveFileOnSignal(name);
}

/// A temporary name in a directory, removed with the object and by signals. Names are given relative to the directory's
/// descriptor: its path and theirs together may be longer than a path can be.
class TemporaryName {
 public:
  TemporaryName() = default;
  /// Of a file that is not there yet.
  TemporaryName(int folder, const fs::path& folder_path, std::string name)
      : folder_(folder), name_(std::move(name)), path_((folder_path / name_).string()) {}
  TemporaryName(TemporaryName&& other) noexcept
      : folder_(other.folder_),
        name_(std::exchange(other.name_, {})),
        path_(std::move(other.path_)),
        is_there_(std::exchange(other.is_there_, false)) {}
  TemporaryName& operator=(TemporaryName&& other) noexcept {
    std::swap(folder_, other.folder_);
    std::swap(name_, other.name_);
    std::swap(path_, other.path_);
    std::swap(is_there_, other.is_there_);
    return *this;
  }
  /// The file is there now.
  void own() {
    is_there_ = true;
    removeOnSignal(path_);
  }
  ~TemporaryName() {
    if (!is_there_) return;
    unlinkat(folder_, name_.c_str(), 0);
    keepOnSignal(path_);
  }
  bool empty() const noexcept { return name_.empty(); }
  const std::string& get() const noexcept { return name_; }
  /// The file has another name now.
  void forget() {
    keepOnSignal(path_);
    name_.clear();
    is_there_ = false;
  }

 private:
  int folder_ = -1;
  std::string name_, path_;
  bool is_there_ = false;
};

/// A directory, by descriptor and by path.
struct Folder {
  Descriptor descriptor;
  fs::path path;

  bool open(const fs::path& folder) {
    path = folder;
    descriptor = Descriptor(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    return descriptor.isOpen();
  }
  int get() const noexcept { return descriptor.get(); }

  /// Calls `take` with names until one is free. They are short: that of the output may be as long as names can be. Sets
  /// errno where it fails.
  template <class Take>
  TemporaryName nameFor(const Take& take) const {
    for (unsigned attempt = 0;; ++attempt) {
      TemporaryName name(get(), path, fmt::format(".sr-jit-{}-{}.part", getpid(), attempt));
      if (take(name.get().c_str())) {
        name.own();
        return name;
      }
      if (errno != EEXIST) return {};
    }
  }
};

}  // namespace

struct OutputFile::State {
  std::string path;     // as the caller named it
  Folder folder;        // of the target
  std::string target;   // the name of the file to replace or overwrite; empty where bytes go straight to their place
  Folder elsewhere;     // of the temporary file, if that is not `folder`
  Descriptor file;      // where bytes go
  Descriptor existing;  // the target, if it is there
  TemporaryName temporary;  // of `file`, while it has one
  bool stays = false;       // the target is overwritten
  int failure = 0;          // errno of the first failure
  std::string buffer;

  bool openTemporary(const Folder& place, mode_t mode) {
    if (access("/proc/self/fd", X_OK) == 0) {  // else it could not be named later
      file = Descriptor(openat(place.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode));
      // Not every file system has unnamed files; the errors of those that lack them differ.
      if (file.isOpen() || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file.isOpen();
    }
    temporary = place.nameFor([&](const char* name) {
      file = Descriptor(openat(place.get(), name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, mode));
      return file.isOpen();
    });
    return file.isOpen();
  }

  bool openReplacement() {
    existing = Descriptor(openat(folder.get(), target.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    if (!existing.isOpen()) return errno == ENOENT && openTemporary(folder, 0666);
    struct stat facts{};
    if (fstat(existing.get(), &facts) != 0) return false;
    if (!S_ISREG(facts.st_mode)) {
      file = std::move(existing);
      target.clear();
      return true;
    }
    stays = mustStay(existing.get());
    if (openTemporary(folder, 0600)) {
      stays = stays || fchown(file.get(), static_cast<uid_t>(-1), facts.st_gid) != 0 ||
              fchmod(file.get(), facts.st_mode & 07777) != 0;
      return true;
    }
    const int refused = errno;
    stays = true;
    std::error_code failed;
    if (elsewhere.open(fs::temp_directory_path(failed)) && openTemporary(elsewhere, 0600)) return true;
    errno = refused;
    return false;
  }

  /// Uses a descriptor that this process was started with; its own are closed on exec.
  bool useDescriptor(int descriptor) {
    const int facts = fcntl(descriptor, F_GETFD), flags = fcntl(descriptor, F_GETFL);
    if (flags >= 0 && ((flags & O_ACCMODE) == O_RDONLY || (facts & FD_CLOEXEC) != 0)) {
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
    target = destination->name.string();
    return folder.open(destination->folder) && openReplacement();
  }

  void flush() {
    beginResults();
    if (failure == 0) failure = writeAll(file.get(), buffer);
    if (failure != 0 && target.empty()) endIfReaderIsGone(failure);
    buffer.clear();
  }

  bool linkTo(const char* name) const {
    const std::string link = fmt::format("/proc/self/fd/{}", file.get());
    return linkat(AT_FDCWD, link.c_str(), folder.get(), name, AT_SYMLINK_FOLLOW) == 0;
  }

  /// Gives the file the name of the target. linkat() cannot replace an existing file, rename() can: then the file gets
  /// a temporary name first.
  bool name() {
    if (temporary.empty()) {
      if (!existing.isOpen() && linkTo(target.c_str())) return true;
      temporary = folder.nameFor([&](const char* link) { return linkTo(link); });
      if (temporary.empty()) return false;
    }
    if (renameat(folder.get(), temporary.get().c_str(), folder.get(), target.c_str()) != 0) return false;
    temporary.forget();
    return true;
  }

  /// Whether the target still is the file that was opened.
  bool isStillThere() const {
    struct stat opened{}, named{};
    if (fstat(existing.get(), &opened) != 0 || fstatat(folder.get(), target.c_str(), &named, 0) != 0) return false;
    if (opened.st_dev == named.st_dev && opened.st_ino == named.st_ino) return true;
    errno = ESTALE;
    return false;
  }

  /// Copies the bytes into the target. Room for them is taken first where the file system can do that, so that a full
  /// disk is found before the old content is gone.
  bool overwrite() {
    if (!isStillThere()) return false;
    const off_t size = lseek(file.get(), 0, SEEK_END);
    if (size < 0 || lseek(file.get(), 0, SEEK_SET) != 0) return false;
    while (size > 0 && fallocate(existing.get(), FALLOC_FL_KEEP_SIZE, 0, size) != 0 && errno != EOPNOTSUPP) {
      if (errno != EINTR) return false;
    }
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

  // Overwriting is also what is left where a rename fails for a reason that could not be seen before. A full disk is no
  // such reason: then the old content stays.
  bool put() {
    if (fsync(file.get()) != 0) return false;
    if (stays) return overwrite();
    if (name()) return true;
    const bool only_renaming = errno == EBUSY || errno == EPERM || errno == EACCES || errno == EXDEV;
    return only_renaming && existing.isOpen() && overwrite();
  }
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
