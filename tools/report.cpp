#include "tools/report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <llvm/Support/Signals.h>

#include "ir/text.h"
#include "tools/streams.h"

namespace srjit {

ExitStatus exitStatus(Errc code) noexcept {
  switch (code) {
    case Errc::kSyntax:
    case Errc::kInvalid:
    case Errc::kIo:
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
  tell("sr-jit: " + error.message + '\n');
  return exitStatus(error.code);
}

void reportAndExit(const char* message) {
  llvm::sys::RunInterruptHandlers();  // which remove the files that signals remove
  char line[1024];                    // in one piece, since other threads may be writing, too
  const int length = std::snprintf(line, sizeof line, "sr-jit: %s\n", message);
  tell({line, std::min(sizeof line - 1, static_cast<std::size_t>(length))});
  _exit(kMachineFailure);
}

}  // namespace srjit
