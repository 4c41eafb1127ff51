#include "tools/report.h"

#include <execinfo.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <iterator>
#include <new>
#include <thread>

#include <fmt/format.h>
#include <llvm/Support/Signals.h>

#include "compiler/kernels/assembler.h"
#include "ir/text.h"
#include "runtime/platform/deadline.h"

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

/// What the process may still do: decided once, by the thread that comes first.
enum class ProcessEnd : std::uint8_t { kOpen, kWritesResults, kBegun };
std::atomic<ProcessEnd> process_end = ProcessEnd::kOpen;

void waitForEnd() noexcept {
  for (;;) pause();
}

[[noreturn]] void endWith(const char* message, ExitStatus status) {
  llvm::sys::RunInterruptHandlers();  // which remove the files that signals remove
  char line[1024];                    // in one piece, since other threads may be writing, too
  const int length = std::snprintf(line, sizeof line, "sr-jit: %s\n", message);
  tell({line, std::min(sizeof line - 1, static_cast<std::size_t>(length))});
  _exit(status);
}

/// What a crash leaves: where it was. A stack that is used up leaves nothing. Then the signal ends the process.
void tellOfCrash(int signal) {
  tell("sr-jit: crashed; please report these lines and the command:\n");
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, std::size(frames)), STDERR_FILENO);
  std::raise(signal);
}

/// Sanitizers report crashes themselves.
void tellOfCrashes() {
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads what it needs
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
    struct sigaction before{}, action{};
    action.sa_handler = tellOfCrash;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) continue;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace

int runMain(const std::function<int()>& body) {
  fillStandardDescriptors();
  tellOfCrashes();
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

ExitStatus exitStatus(Errc code) noexcept {
  switch (code) {
    case Errc::kSyntax:
    case Errc::kInvalid:
    case Errc::kIo:
    case Errc::kLimit:
      return kBadInput;
    case Errc::kUnsupported:
    case Errc::kCompile:
    case Errc::kMachine:
    case Errc::kCancelled:
      return kMachineFailure;
  }
  return kMachineFailure;
}

ExitStatus report(const Error& error) {
  if (process_end == ProcessEnd::kBegun) waitForEnd();
  tell("sr-jit: " + error.message + '\n');
  return exitStatus(error.code);
}

void reportAndExit(const char* message) { endWith(message, kMachineFailure); }

void endProcessAfter(double seconds) {
  const Deadline deadline(seconds);
  if (!deadline.end()) return;
  std::thread([end = *deadline.end(), message = tooManySeconds(seconds).message] {
    std::this_thread::sleep_until(end);
    ProcessEnd expected = ProcessEnd::kOpen;
    if (!process_end.compare_exchange_strong(expected, ProcessEnd::kBegun)) return;
    abandonPrograms();
    endWith(message.c_str(), exitStatus(Errc::kLimit));
  }).detach();
}

void beginResults() noexcept {
  ProcessEnd expected = ProcessEnd::kOpen;
  if (process_end.compare_exchange_strong(expected, ProcessEnd::kWritesResults)) return;
  if (expected == ProcessEnd::kBegun) waitForEnd();
}

}  // namespace srjit
