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

/// Prints the message to standard error, best effort, and gives the exit status. Does not return where
/// endProcessAfter() ends the process.
ExitStatus report(const Error& error);

/// The same for a failure after which nothing but the end is possible (compiler/llvm_failures.h): without memory, locks
/// or destructors. Removes temporary files, and ends the process with kMachineFailure.
[[noreturn]] void reportAndExit(const char* message);

/// Ends the process after this number of seconds, with kBadInput and the message of Limits::max_seconds, unless results
/// are being written by then: nothing else can end LLVM or an assembler that takes minutes. Kills the programs of the
/// toolkit that run, and removes temporary files. To be called once, by a program.
void endProcessAfter(double seconds);

/// From now on endProcessAfter() does not end the process, so that results are complete. Does not return if the
/// end has begun.
void beginResults() noexcept;

}  // namespace srjit
