// How the command tells what went wrong: exit statuses, words for failures, and messages that show the place.
#pragma once

#include <fmt/format.h>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

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

/// Runs `body` as all of main(), and gives the exit status of the process. Before:
/// - Descriptors 0 to 2 that are closed are opened on /dev/null, in the direction that makes their use fail: a file
///   that is opened later cannot become standard output or standard error.
/// - SIGXFSZ and SIGPIPE are ignored: a file over the size limit and a closed pipe are errors of write(2).
/// After: what standard output could not take is reported, and the status is then that of an output that cannot be
/// written. An ErrorException is reported as its error, any other exception as a failure of the machine.
int runMain(const std::function<int()>& body);

/// Writes to standard error, best effort: a message that cannot be written changes neither results nor exit status.
void tell(std::string_view text) noexcept;

/// Flushes standard output. Errors: kIo if anything that was written to it since the start was lost.
Status finishStandardOutput();

/// What a program does when the reader of its results is gone: ends as SIGPIPE ends it, without a word. Returns if
/// `number` (errno of a failed write) is not EPIPE.
void endIfReaderIsGone(int number) noexcept;

/// Gives both signals back to what they were, for the program that this process is about to become.
void restoreSignals() noexcept;

/// An error without a place.
template <class... Args>
Error failure(Errc code, fmt::format_string<Args...> text, Args&&... args) {
  return {code, fmt::format(text, std::forward<Args>(args)...), {}};
}

/// Throws an ErrorException of kInvalid.
template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throwError(failure(Errc::kInvalid, text, std::forward<Args>(args)...));
}

}  // namespace srjit
