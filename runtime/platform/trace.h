// Events of the trace, for those who have some to tell.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/platform/trace_events.h"

namespace srjit {

using TraceClock = std::chrono::steady_clock;

namespace detail {
extern std::atomic<bool> is_tracing;
}

/// What code is called in events.
inline constexpr std::string_view kInterpreterCode = "interpreter", kDirectCode = "direct code",
                                  kCompiledCode = "compiled code";

/// Whether there is somebody to tell. One relaxed load.
inline bool isTracing() noexcept { return detail::is_tracing.load(std::memory_order_relaxed); }

/// When the trace began that was started last.
TraceClock::time_point traceBegin() noexcept;

/// Starts the trace that SRJIT_TRACE asks for, once in the life of the process. Errors: those of traceToFile().
Status traceByEnvironment();

/// A TraceEvent before it is known when the trace began.
struct TraceFact {
  TraceKind kind{};
  std::string_view what, device;
  TraceClock::time_point begin = TraceClock::now();
  double seconds = 0;
  std::span<const TraceNumber> numbers = {};
  bool on_stream = false;  ///< of a device's stream: it is told without the thread's number
};

/// Tells of it, unless it began before the trace did, or memory lacks: tracing fails no call.
void trace(const TraceFact& fact) noexcept;

/// Tells of the time of its life, unless nothing traces at its beginning. `what` and `device` are borrowed.
class [[nodiscard]] TraceSpan {
 public:
  TraceSpan(TraceKind kind, std::string_view what, std::string_view device) noexcept {
    if (isTracing()) fact_.emplace(TraceFact{.kind = kind, .what = what, .device = device});
  }
  ~TraceSpan() {
    if (fact_) end();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  /// Adds a number; a few at most.
  void add(std::string_view name, std::size_t value) noexcept {
    if (fact_ && count_ < numbers_.size()) numbers_[count_++] = {name, static_cast<double>(value)};
  }

 private:
  void end() noexcept;

  std::optional<TraceFact> fact_;
  std::array<TraceNumber, 4> numbers_;
  std::size_t count_ = 0;
};

}  // namespace srjit
