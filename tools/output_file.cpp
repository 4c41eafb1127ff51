#include "tools/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace srjit {
namespace {

constexpr std::size_t kBuffer = 1 << 20;

Error cannotWrite(const std::string& path, int number) {
  return {
      Errc::kIo, fmt::format("cannot write {}: {}", path == "-" ? "standard output" : path, std::strerror(number)), {}};
}

}  // namespace

struct OutputFile::State {
  std::string path;       // as the caller named it
  std::string target;     // what publish() renames to; empty where bytes go straight to their place
  std::string temporary;  // a name to remove or rename; empty while the file has none
  int file = -1;
  int failure = 0;  // errno of the first failure
  std::string buffer;
  State* next = nullptr;  // in the list of all

  static inline std::mutex mutex;  // guards the list
  static inline State* first = nullptr;

  State() {
    const std::lock_guard lock(mutex);
    next = std::exchange(first, this);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (file >= 0) close(file);
    if (!temporary.empty()) unlink(temporary.c_str());
    const std::lock_guard lock(mutex);
    State** place = &first;
    while (*place != this) place = &(*place)->next;
    *place = next;
  }

  std::string temporaryName() const {
    const std::filesystem::path place(target);
    return (place.parent_path() / fmt::format(".{}.{}.part", place.filename().string(), getpid())).string();
  }

  bool openTemporary(mode_t mode) {
    const std::string folder = std::filesystem::path(target).parent_path().string();
    file = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
    // Not every file system has unnamed files; the errors of those that lack them differ.
    if (file < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
      const std::string name = temporaryName();
      unlink(name.c_str());  // left by a process of the same number that was killed
      file = open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode);
      if (file >= 0) temporary = name;
    }
    return file >= 0;
  }

  void flush() {
    std::string_view rest = buffer;
    while (!rest.empty() && failure == 0) {
      const ssize_t done = ::write(file, rest.data(), rest.size());
      if (done >= 0) {
        rest.remove_prefix(static_cast<std::size_t>(done));
      } else if (errno != EINTR) {
        failure = errno;
      }
    }
    buffer.clear();
  }

  bool name() {
    if (fsync(file) != 0) return false;
    if (temporary.empty()) {
      // linkat() cannot replace an existing file, rename() can: so the file gets a temporary name first.
      const std::string link = temporaryName();
      unlink(link.c_str());
      if (linkat(AT_FDCWD, fmt::format("/proc/self/fd/{}", file).c_str(), AT_FDCWD, link.c_str(), AT_SYMLINK_FOLLOW) !=
          0) {
        return false;
      }
      temporary = link;
    }
    if (rename(temporary.c_str(), target.c_str()) != 0) return false;
    temporary.clear();
    return true;
  }
};

OutputFile::OutputFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
OutputFile::OutputFile(OutputFile&&) noexcept = default;
OutputFile& OutputFile::operator=(OutputFile&&) noexcept = default;
OutputFile::~OutputFile() = default;

void OutputFile::removeTemporaries() noexcept {
  for (const State* state = State::first; state != nullptr; state = state->next) {
    if (!state->temporary.empty()) unlink(state->temporary.c_str());
  }
}

Result<OutputFile> OutputFile::create(const std::string& path) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->buffer.reserve(kBuffer);
  struct stat facts{};
  const bool exists = path != "-" && stat(path.c_str(), &facts) == 0;
  if (path == "-") {
    std::fflush(stdout);
    state->file = dup(STDOUT_FILENO);
  } else if (exists && !S_ISREG(facts.st_mode)) {
    state->file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else if (path.empty() || path.ends_with('/')) {
    errno = ENOENT;
  } else if (!exists || access(path.c_str(), W_OK) == 0) {
    // A symbolic link keeps pointing where it does; the file behind it is replaced.
    std::error_code failed;
    state->target = std::filesystem::weakly_canonical(std::filesystem::absolute(path, failed), failed).string();
    if (failed) return cannotWrite(path, failed.value());
    if (state->openTemporary(0666) && exists) fchmod(state->file, facts.st_mode & 07777);
  }
  if (state->file < 0) return cannotWrite(path, errno);
  return OutputFile(std::move(state));
}

void OutputFile::write(std::string_view bytes) {
  if (state_->buffer.size() + bytes.size() > kBuffer) state_->flush();
  if (state_->failure == 0) state_->buffer.append(bytes);
}

Status OutputFile::publish() {
  state_->flush();
  if (state_->failure == 0 && !state_->target.empty() && !state_->name()) state_->failure = errno;
  if (state_->failure != 0) return cannotWrite(state_->path, state_->failure);
  return okStatus();
}

}  // namespace srjit
