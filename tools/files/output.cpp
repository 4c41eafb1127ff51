#include "tools/files/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <llvm/ADT/SmallString.h>
#include <llvm/Support/FileSystem.h>
#include <llvm/Support/Signals.h>

#include "compiler/lowering/llvm_scope.h"
#include "runtime/cache/files.h"
#include "tools/files/read.h"
#include "tools/report.h"

namespace srjit {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBuffer = 1 << 20;

Error cannotWrite(const std::string& path, int number) {
  const std::string name = path == "-" ? "standard output" : displayName(path);
  return {Errc::kIo, fmt::format("cannot write {}: {}", name, std::strerror(number)), {}};
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

/// The file that a path leads to, or if the path names one, an open descriptor of this process.
struct Destination {
  fs::path folder, name;
  std::optional<int> descriptor;
};

/// Whether a link redirects the write for somebody else: its owner is another one, and all may create links in its
/// folder. Linux refuses to follow it where fs.protected_symlinks is set (proc(5)).
bool isForeignLink(const struct stat& link, const struct stat& folder) {
  constexpr mode_t kShared = S_ISVTX | S_IWOTH;
  return (folder.st_mode & kShared) == kShared && link.st_uid != geteuid() && link.st_uid != folder.st_uid;
}

/// Follows symbolic links, also to a file that does not exist. Sets errno where it fails.
std::optional<Destination> follow(fs::path file) {
  constexpr int kMostLinks = 40;  // as Linux follows
  for (int links = 0; links <= kMostLinks; ++links) {
    Destination found{file.has_parent_path() ? file.parent_path() : ".", file.filename(), {}};
    struct stat facts{}, folder_facts{};
    if (lstat(file.c_str(), &facts) != 0 && errno != ENOENT) return std::nullopt;
    if (stat(found.folder.c_str(), &folder_facts) != 0) return std::nullopt;
    if (!S_ISLNK(facts.st_mode)) return found;
    // A descriptor's link cannot be followed: it does not say where the bytes are, and opening it anew loses the offset
    // and O_APPEND.
    std::error_code failure;
    const fs::path descriptors = fs::canonical("/proc/self/fd", failure);
    int number = 0;
    if (!failure && fs::canonical(found.folder, failure) == descriptors &&
        !llvm::StringRef(found.name.native()).getAsInteger(10, number)) {
      found.descriptor = number;
      return found;
    }
    const fs::path next = fs::read_symlink(file, failure);
    if (failure || isForeignLink(facts, folder_facts)) {
      errno = failure ? failure.value() : EACCES;
      return std::nullopt;
    }
    file = found.folder / next;  // only `next` if that is absolute
  }
  errno = ELOOP;
  return std::nullopt;
}

}  // namespace

// Functions that return bool set errno where they fail. Names are relative to the descriptor of the folder: its path
// and theirs together may be longer than a path can be.
struct OutputFile::State {
  std::string path;       // as the caller named it
  fs::path folder_path;   // of the target
  std::string target;     // the name of the file to replace or overwrite; empty if bytes go straight to their place
  std::string temporary;  // the name of `file` in the folder, while it has one
  int folder = -1;        // descriptors: of the target's folder,
  int file = -1;          // of where bytes go,
  int existing = -1;      // and of the target, if it exists
  bool stays = false;     // the target is overwritten
  int failure = 0;        // errno of the first failure
  std::string buffer;

  ~State() {
    if (!temporary.empty()) unlinkat(folder, temporary.c_str(), 0);
    forgetTemporary();
    for (const int each : {folder, file, existing}) {
      if (each >= 0) ::close(each);
    }
  }

  /// Calls `take` with names until one is free. They are short: that of the target may be as long as names can be.
  template <class Take>
  bool nameTemporary(const Take& take) {
    for (unsigned attempt = 0;; ++attempt) {
      std::string name = fmt::format(".sr-jit-{}-{}.part", getpid(), attempt);
      if (take(name.c_str())) {
        temporary = std::move(name);
        removeOnSignal((folder_path / temporary).string());
        return true;
      }
      if (errno != EEXIST) return false;
    }
  }

  void forgetTemporary() {
    if (temporary.empty()) return;
    const LlvmScope scope;
    llvm::sys::DontRemoveFileOnSignal((folder_path / temporary).string());
    temporary.clear();
  }

  /// Opens a file in the folder: unnamed, where it can get a name later, which takes /proc.
  bool openBeside(mode_t mode) {
    if (access("/proc/self/fd", X_OK) == 0) {
      file = openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
      // Not every file system has unnamed files; the errors of those that lack them differ.
      if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file >= 0;
    }
    return nameTemporary([&](const char* name) {
      file = openat(folder, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, mode);
      return file >= 0;
    });
  }

  bool openReplacement() {
    existing = openat(folder, target.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW);
    if (existing < 0) return errno == ENOENT && openBeside(0666);
    struct stat facts{};
    if (fstat(existing, &facts) != 0) return false;
    if (!S_ISREG(facts.st_mode)) {
      file = std::exchange(existing, -1);
      target.clear();
      return true;
    }
    // A rename would lose another owner or an access control list.
    stays = facts.st_uid != geteuid() || fgetxattr(existing, "system.posix_acl_access", nullptr, 0) > 0;
    if (openBeside(0600)) {
      stays =
          stays || fchown(file, static_cast<uid_t>(-1), facts.st_gid) != 0 || fchmod(file, facts.st_mode & 07777) != 0;
      return true;
    }
    // The bytes wait in the directory for temporary files.
    const int refused = errno;
    stays = true;
    llvm::SmallString<64> name;
    if (!llvm::sys::fs::createTemporaryFile("sr-jit", "part", file, name)) return unlink(name.c_str()) == 0;
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
      file = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    }
    return file >= 0;
  }

  bool open() {
    if (path == "-") return useDescriptor(STDOUT_FILENO);
    if (path.empty() || path.ends_with('/')) {
      file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);  // fails, and says why
      return false;
    }
    const std::optional<Destination> destination = follow(path);
    if (!destination) return false;
    if (destination->descriptor) return useDescriptor(*destination->descriptor);
    target = destination->name.string();
    folder_path = destination->folder;
    folder = ::open(folder_path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    return folder >= 0 && openReplacement();
  }

  void flush() {
    beginResults();
    if (failure == 0) failure = writeAll(file, buffer);
    if (failure != 0 && target.empty()) endIfReaderIsGone(failure);
    buffer.clear();
  }

  /// Gives the file the name of the target. linkat() cannot replace an existing file, rename() can: then the file gets
  /// a temporary name first.
  bool name() {
    const std::string opened = fmt::format("/proc/self/fd/{}", file);
    const auto link = [&](const char* as) {
      return linkat(AT_FDCWD, opened.c_str(), folder, as, AT_SYMLINK_FOLLOW) == 0;
    };
    if (temporary.empty() && existing < 0 && link(target.c_str())) return true;
    if (temporary.empty() && !nameTemporary(link)) return false;
    if (renameat(folder, temporary.c_str(), folder, target.c_str()) != 0) return false;
    forgetTemporary();
    return true;
  }

  /// Copies the bytes into the target, if that still is the file that was opened. Takes the room for them first where
  /// the file system can do that, so that a full disk is found before the old content is gone.
  bool overwrite() {
    struct stat opened{}, named{};
    if (fstat(existing, &opened) != 0 || fstatat(folder, target.c_str(), &named, 0) != 0) return false;
    if (opened.st_dev != named.st_dev || opened.st_ino != named.st_ino) {
      errno = ESTALE;
      return false;
    }
    const off_t size = lseek(file, 0, SEEK_END);
    if (size < 0 || lseek(file, 0, SEEK_SET) != 0) return false;
    while (size > 0 && fallocate(existing, FALLOC_FL_KEEP_SIZE, 0, size) != 0 && errno != EOPNOTSUPP) {
      if (errno != EINTR) return false;
    }
    buffer.resize(kBuffer);
    for (ssize_t got = 1; got != 0;) {
      got = read(file, buffer.data(), buffer.size());
      if (got < 0 && errno != EINTR) return false;
      if (got <= 0) continue;
      errno = writeAll(existing, std::string_view(buffer).substr(0, static_cast<std::size_t>(got)));
      if (errno != 0) return false;
    }
    return ftruncate(existing, size) == 0 && fsync(existing) == 0;
  }

  // Overwriting also remains where a rename fails for a reason that could not be seen before, such as a mount point. A
  // full disk is no such reason: then the old content stays.
  bool put() {
    if (fsync(file) != 0) return false;
    if (stays) return overwrite();
    if (name()) return true;
    const bool only_renaming = errno == EBUSY || errno == EPERM || errno == EACCES || errno == EXDEV;
    return only_renaming && existing >= 0 && overwrite();
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
