// How the command tells what went wrong: exit statuses, words for failures, and messages that show the place.
#pragma once

#include <string>
#include <string_view>

#include "ir/error.h"

namespace srjit {

/// The exit statuses of the command (docs: `sr-jit --help`).
enum ExitStatus : int {
  kDone = 0,
  kBadInput = 1,       ///< an expression, a file or a value
  kWrongUsage = 2,     ///< the command line
  kMachineFailure = 3  ///< no device, driver, tool or memory; a compile failure; no code of a tier
};

/// The exit status of a failure; the only place that decides it.
ExitStatus exitStatus(Errc code) noexcept;

/// `error` made complete for a reader of standard error: "ORIGIN:LINE:COLUMN: MESSAGE", the line and a caret.
/// `error.where` counts in `line_text`, which is line number `line` of `origin`; the result's place counts in the
/// origin. Without a place the message becomes "ORIGIN:LINE: MESSAGE".
Error showPlace(Error error, std::string_view line_text, std::string_view origin, std::size_t line);

/// Prints the message to standard error, best effort, and gives the exit status.
ExitStatus report(const Error& error);

/// The same for a failure after which nothing but the end is possible (compiler/llvm_failures.h): without memory, locks
/// or destructors. Removes temporary files, and ends the process with kMachineFailure.
[[noreturn]] void reportAndExit(const char* message);

}  // namespace srjit
