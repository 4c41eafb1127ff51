// When the work of a call must end (Limits::max_seconds and Limits::stop), for all that works for it.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "ir/error.h"

namespace srjit {

/// kLimit: a call took `max_seconds`.
inline Error tooManySeconds(double max_seconds) {
  return {Errc::kLimit,
          fmt::format("stopped after {} s, the longest that a call may take; a larger max_seconds (--max-seconds) "
                      "allows more",
                      max_seconds),
          {}};
}

/// kLimit: the caller requested Limits::stop.
inline Error stoppedByCaller() { return {Errc::kLimit, "stopped by the caller", {}}; }

/// A time and a token by which a caller stops the work, or neither. Work asks between two units, which take
/// milliseconds each, or are one compilation. Cheap to copy, immutable.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  /// Seconds that the clock can hold; as many, or more, are no limit.
  static constexpr double kLongest = 1e9;

  /// None.
  Deadline() = default;
  /// `max_seconds` from now, unless that is 0 or more than a clock can hold, or as soon as `stop` is requested.
  explicit Deadline(double max_seconds, std::stop_token stop = {}) : seconds_(max_seconds), stop_(std::move(stop)) {
    if (!(max_seconds > 0 && max_seconds < kLongest)) return;
    end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(max_seconds));
  }

  const std::optional<Clock::time_point>& end() const noexcept { return end_; }
  const std::stop_token& stop() const noexcept { return stop_; }
  /// Whether it can be over at some time.
  bool canEnd() const noexcept { return end_ || stop_.stop_possible(); }
  bool isOver() const noexcept { return stop_.stop_requested() || (end_ && Clock::now() >= *end_); }
  /// Throws an ErrorException (kLimit) if it is over.
  void check() const {
    if (stop_.stop_requested()) throw ErrorException(stoppedByCaller());
    if (isOver()) throw ErrorException(tooManySeconds(seconds_));
  }
  /// Until when a thread may wait before it calls check() again.
  Clock::time_point nextLook() const noexcept {
    constexpr std::chrono::milliseconds kBetweenLooks{10};
    if (!stop_.stop_possible()) return end_.value_or(Clock::time_point::max());
    return std::min(end_.value_or(Clock::time_point::max()), Clock::now() + kBetweenLooks);
  }

 private:
  std::optional<Clock::time_point> end_;
  double seconds_ = 0;
  std::stop_token stop_;
};

/// Locks a mutex. Throws an ErrorException (kLimit) if others hold it until the deadline.
inline std::unique_lock<std::timed_mutex> lockUntil(const Deadline& deadline, std::timed_mutex& mutex) {
  if (!deadline.canEnd()) return std::unique_lock(mutex);
  std::unique_lock lock(mutex, std::defer_lock);
  while (!lock.try_lock_until(deadline.nextLook())) deadline.check();
  return lock;
}

/// Calls `ring` at the time of a deadline, on a thread of its own, and when its stop is requested, on the thread that
/// requests it; unless it is destroyed before. Its destructor waits for a call that has begun.
class Alarm {
 public:
  Alarm(const Deadline& deadline, std::function<void()> ring) : stopped_(deadline.stop(), ring) {
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
  std::stop_callback<std::function<void()>> stopped_;
  std::jthread thread_;
};

}  // namespace srjit
