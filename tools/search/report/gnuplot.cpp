#include "tools/search/report/gnuplot.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <llvm/Support/Program.h>

namespace srjit::search {
namespace {

std::string reasonOf(int number) { return std::generic_category().message(number); }

/// A file in memory. Each stream of the child is one: unlike a pipe it can neither fill up nor break.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("srjit-gnuplot", MFD_CLOEXEC)) {}
  ~MemoryFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int descriptor() const noexcept { return descriptor_; }

  /// Writes all of it and goes back to the start; false if that fails (errno).
  bool fill(std::string_view content) const {
    while (!content.empty()) {
      const ssize_t written = ::write(descriptor_, content.data(), content.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      content.remove_prefix(static_cast<std::size_t>(written));
    }
    return lseek(descriptor_, 0, SEEK_SET) == 0;
  }

  std::string content() const {
    std::string content;
    char block[1 << 16];
    for (off_t offset = 0;;) {
      const ssize_t count = pread(descriptor_, block, sizeof block, offset);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return content;
      content.append(block, static_cast<std::size_t>(count));
      offset += count;
    }
  }

 private:
  int descriptor_;
};

/// The end of what it wrote to standard error, as one line: an error stands there.
std::string lastWords(std::string_view errors) {
  constexpr std::size_t kLongest = 400;
  std::string words;
  for (const char c : errors) {
    const bool is_space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!is_space) words += c;
    if (is_space && !words.empty() && words.back() != ' ') words += ' ';
  }
  if (words.ends_with(' ')) words.pop_back();
  return words.size() <= kLongest ? words : "..." + words.substr(words.size() - kLongest);
}

/// The status of a child when it has ended; none where another part of the process has taken it, or no one may (SIGCHLD
/// is ignored).
std::optional<int> waitFor(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return std::nullopt;
  }
  return status;
}

}  // namespace

Result<std::string> findGnuplot() {
  const llvm::ErrorOr<std::string> program = llvm::sys::findProgramByName("gnuplot");
  if (program) return *program;
  return Error{
      Errc::kMachine, "gnuplot was not found; plots need it: install it (Debian's package is gnuplot-nox)", {}};
}

Result<std::string> runGnuplot(std::string_view script) {
  const Result<std::string> program = findGnuplot();
  if (!program) return program.error();
  const MemoryFile in, out, err;
  if (in.descriptor() < 0 || out.descriptor() < 0 || err.descriptor() < 0 || !in.fill(script)) {
    return Error{Errc::kMachine, fmt::format("cannot keep what gnuplot reads and writes: {}", reasonOf(errno)), {}};
  }
  std::string name = "gnuplot", defaults = "-d";
  char* const arguments[] = {name.data(), defaults.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.descriptor(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.descriptor(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.descriptor(), STDERR_FILENO);
  pid_t child = 0;
  const int code = posix_spawn(&child, program->c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code != 0) {
    return Error{Errc::kMachine, fmt::format("cannot start {}: {}", *program, reasonOf(code)), {}};
  }
  const std::optional<int> status = waitFor(child);
  const std::string words = lastWords(err.content());
  // Where the status is not known, only words tell of a failure.
  if (status ? *status != 0 : !words.empty()) {
    const std::string ending = !status                ? "no status"
                               : WIFSIGNALED(*status) ? fmt::format("signal {}", WTERMSIG(*status))
                                                      : fmt::format("exit status {}", WEXITSTATUS(*status));
    return Error{Errc::kMachine, fmt::format("gnuplot failed ({}): {}", ending, words), {}};
  }
  return out.content();
}

}  // namespace srjit::search
