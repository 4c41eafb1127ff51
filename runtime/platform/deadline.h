// When the work of a call must end (Limits::max_seconds), for all that works for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include <fmt/format.h>

#include "ir/error.h"

namespace srjit {

/// kLimit: a call took so many seconds.
inline Error tooManySeconds(double max_seconds) {
  return {Errc::kLimit,
          fmt::format("stopped after {} s, the longest that a call may take; a larger max_seconds (--max-seconds) "
                      "allows more",
                      max_seconds),
          {}};
}

/// A time, or none. Work asks between two units, such as the graphs of some expressions or the blocks of some rows; a
/// unit takes milliseconds, or is one compilation. Cheap to copy, immutable.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// None.
  Deadline() = default;
  /// So many seconds from now; 0: none. Likewise for more than a clock can hold.
  explicit Deadline(double max_seconds) : seconds_(max_seconds) {
    constexpr double kLongest = 1e9;
    if (!(max_seconds > 0 && max_seconds < kLongest)) return;
    end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(max_seconds));
  }

  const std::optional<Clock::time_point>& end() const noexcept { return end_; }
  bool isOver() const noexcept { return end_ && Clock::now() >= *end_; }
  /// Throws an ErrorException (kLimit) if it is over.
  void check() const {
    if (isOver()) throw ErrorException(tooManySeconds(seconds_));
  }

 private:
  std::optional<Clock::time_point> end_;
  double seconds_ = 0;
};

/// Locks a mutex. Throws an ErrorException (kLimit) if others hold it until the deadline.
inline std::unique_lock<std::timed_mutex> lockUntil(const Deadline& deadline, std::timed_mutex& mutex) {
  if (!deadline.end()) return std::unique_lock(mutex);
  std::unique_lock lock(mutex, std::defer_lock);
  while (!lock.try_lock_until(*deadline.end())) deadline.check();
  return lock;
}

/// Calls `ring` once at a deadline, on a thread of its own, unless it is destroyed before; its destructor waits for a
/// call that has begun. Without a deadline it does nothing.
class Alarm {
 public:
  Alarm(const Deadline& deadline, std::function<void()> ring) {
    if (!deadline.end()) return;
    thread_ = std::jthread([end = *deadline.end(), ring = std::move(ring)](const std::stop_token& stop) {
      std::mutex mutex;
      std::condition_variable_any stopped;
      std::unique_lock lock(mutex);
      stopped.wait_until(lock, stop, end, [] { return false; });
      if (!stop.stop_requested()) ring();
    });
  }

 private:
  std::jthread thread_;
};

}  // namespace srjit
