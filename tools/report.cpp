#include "tools/report.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include <fmt/format.h>
#include <llvm/Support/Signals.h>

#include "compiler/kernels/assembler.h"
#include "ir/text.h"
#include "runtime/platform/deadline.h"
#include "tools/streams.h"

namespace srjit {

namespace {

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

}  // namespace

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

Error showPlace(Error error, std::string_view line_text, std::string_view origin, std::size_t line) {
  if (!error.where) {
    error.message = fmt::format("{}:{}: {}", origin, line, error.message);
    return error;
  }
  // withCaret counts lines of its text, which here is a single line of the file.
  const std::size_t above = line - 1;
  const std::string shown = withCaret(error, line_text, origin);
  const std::string place = fmt::format("{}:{}:", origin, error.where->line);
  error.where->line += above;
  error.message = fmt::format("{}:{}:{}", origin, error.where->line, std::string_view(shown).substr(place.size()));
  return error;
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
