#include "tools/streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>

#include "tools/report.h"

namespace srjit {
namespace {

/// What SIGXFSZ and SIGPIPE were when the process began.
void (*size_limit_before)(int) = SIG_DFL;
void (*closed_pipe_before)(int) = SIG_DFL;

// A closed standard input is opened for writing and the others for reading, so that using them fails with EBADF as if
// they were closed.
void fillStandardDescriptors() {
  for (const int wanted : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(wanted, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() gives the lowest free descriptor, which is `wanted`, since those below are open by now.
    if (open("/dev/null", wanted == STDIN_FILENO ? O_WRONLY : O_RDONLY) != wanted) _exit(kMachineFailure);
  }
}

}  // namespace

int runMain(const std::function<int()>& body) {
  fillStandardDescriptors();
  size_limit_before = std::signal(SIGXFSZ, SIG_IGN);
  closed_pipe_before = std::signal(SIGPIPE, SIG_IGN);
  int status = kMachineFailure;
  try {
    status = body();
  } catch (const ErrorException& problem) {
    status = report(problem.error());
  } catch (const std::bad_alloc&) {
    status = report({Errc::kMachine, "out of memory", {}});
  } catch (const std::exception& problem) {
    status = report({Errc::kMachine, std::string("unexpected failure: ") + problem.what(), {}});
  }
  if (const Status finished = finishStandardOutput(); !finished) {
    const ExitStatus lost = report(finished.error());
    if (status == kDone) status = lost;
  }
  return status;
}

void tell(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t done = ::write(STDERR_FILENO, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(done));
  }
}

Status finishStandardOutput() {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  const int number = errno;
  if (flushed && std::cout.good() && std::ferror(stdout) == 0) return okStatus();
  endIfReaderIsGone(number);
  std::string message = "cannot write standard output";
  if (number != 0) message += std::string(": ") + std::strerror(number);
  return Error{Errc::kIo, std::move(message), {}};
}

void endIfReaderIsGone(int number) noexcept {
  if (number != EPIPE) return;
  restoreSignals();  // raise() returns where SIGPIPE was ignored before
  raise(SIGPIPE);
}

void restoreSignals() noexcept {
  std::signal(SIGXFSZ, size_limit_before);
  std::signal(SIGPIPE, closed_pipe_before);
}

}  // namespace srjit
