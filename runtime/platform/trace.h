// Events of the trace, for those who have some to tell.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <optional>
#include <string_view>

#include "runtime/platform/trace_events.h"

namespace srjit {

namespace detail {
extern std::atomic<bool> is_tracing;
}

/// Whether there is somebody to tell. One relaxed load.
inline bool isTracing() noexcept { return detail::is_tracing.load(std::memory_order_relaxed); }

/// Seconds since the trace began.
double traceNow() noexcept;

/// Starts the trace that SRJIT_TRACE asks for, once in the life of the process. Errors: those of traceToFile().
Status traceByEnvironment();

/// Tells of an event, with the thread's number unless it is of a device's stream.
enum class TracePlace : std::uint8_t { kThread, kStream };
void trace(TraceEvent event, TracePlace place = TracePlace::kThread) noexcept;

/// Tells of the time of its life, unless nothing traces at its beginning. `what` and `device` are borrowed.
class [[nodiscard]] TraceSpan {
 public:
  TraceSpan(TraceKind kind, std::string_view what, std::string_view device) {
    if (isTracing()) event_.emplace(TraceEvent{.kind = kind, .what = what, .device = device, .begin = traceNow()});
  }
  ~TraceSpan() {
    if (event_) end();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  /// Adds a number; a few at most.
  void add(std::string_view name, std::size_t value) noexcept {
    if (event_ && count_ < numbers_.size()) numbers_[count_++] = {name, static_cast<double>(value)};
  }

 private:
  void end() noexcept;

  std::optional<TraceEvent> event_;
  std::array<TraceNumber, 4> numbers_;
  std::size_t count_ = 0;
};

}  // namespace srjit
