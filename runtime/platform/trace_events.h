// What the library does, with times: for a callback, or a file that Perfetto and chrome://tracing show.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "ir/error.h"

namespace srjit {

/// The kinds of trace_kinds.def.
enum class TraceKind : std::uint8_t {
#define SRJIT_TRACE_KIND(id, name, doc) id,
#include "runtime/platform/trace_kinds.def"
};
/// The name column.
std::string_view nameOf(TraceKind kind) noexcept;

/// How large something of an event is.
struct TraceNumber {
  std::string_view name;  ///< "bytes", "rows", ...
  double value = 0;
};

/// Something that happened. Valid during the callback.
struct TraceEvent {
  TraceKind kind{};
  std::string_view what;     ///< "interpreter", "direct code", "upload", ...
  std::string_view device;   ///< "cuda:0", "cpu"; empty where it is of none
  double begin = 0;          ///< seconds since the trace began
  double seconds = 0;        ///< 0 of a moment
  std::uint32_t thread = 0;  ///< a number of the host's thread, from 1 on; 0: it was the device's stream
  std::span<const TraceNumber> numbers = {};
};

/// Called when an event is over, on the thread where it was; on several threads at once. Must not throw, nor call the
/// library.
using TraceCallback = std::function<void(const TraceEvent&)>;

/// Sends the events of all engines of the process to `callback`, until endTrace(); time begins now. What traced before
/// ends. Events cost nothing but the look at a flag where nothing traces. A child of fork() does not trace, and cannot
/// start a trace, if its parent traced. Thread-safe.
void startTrace(TraceCallback callback);

/// The same to a file in Chrome's trace event format (JSON array format; "Trace Event Format", Chromium project). `%p`
/// in the path is the number of the process. The file is replaced, and grows by whole lines, so that that of a process
/// that was killed can be loaded, too. If SRJIT_TRACE is set, the first engine calls this with its value; where that
/// fails, it is one of Engine::notices(). Errors: kMachine, the file cannot be written.
Status traceToFile(const std::string& path);

/// Ends the trace. When this returns, no callback runs any more; so it must not be called by one. Errors: kMachine, the
/// file could not be written completely.
Status endTrace();

}  // namespace srjit
