// The standard streams of a program, and the frame of its main().
#pragma once

#include <functional>
#include <string_view>

#include "ir/error.h"

namespace srjit {

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

}  // namespace srjit
