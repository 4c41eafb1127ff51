// When a search ends: the thread that called it watches the time and asks the caller, while another thread searches.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>

#include "ir/error.h"

namespace srjit::search {

enum class SearchEnd : std::uint8_t { kTime, kGenerations, kEnough, kStopped };
constexpr const char* nameOf(SearchEnd end) noexcept {
  constexpr const char* kNames[] = {"time", "generations", "enough", "stopped"};
  return kNames[static_cast<std::size_t>(end)];
}

/// Calls `work`. An ErrorException is ignored if `stop` was requested meanwhile, since that cuts work off.
template <class Work>
void untilStopped(const std::stop_token& stop, const Work& work) {
  try {
    work();
  } catch (const ErrorException&) {
    if (!stop.stop_requested()) throw;
  }
}

/// Ends a search in two stages. First `ended()` is requested, by the time or by the caller: work inside of a generation
/// stops. Then the search closes: it fits what it has found until `fitted()` is requested, and rounds it until
/// `closed()` is. run() belongs to the thread that called the search, all other functions to the thread that searches.
class Timekeeper {
 public:
  using Clock = std::chrono::steady_clock;

  /// `stop`: SearchOptions::stop, or none. `seconds` from `begun` on is the time of the search; 0: no limit.
  Timekeeper(std::function<bool()> stop, Clock::time_point begun, double seconds);

  /// Runs `work` on a thread of its own until it returns. Meanwhile this thread runs what onCaller() is given, asks
  /// `stop` fifty times a second until it says yes, and looks at the time. Throws what `work` throws, and what
  /// callbacks throw, after `work` has returned. Call once.
  void run(const std::function<void()>& work);

  /// Runs `callback` on the thread of run(), asks `stop` there, and waits for both. Once a callback has thrown, no more
  /// are run.
  void onCaller(const std::function<void()>& callback);

  Clock::time_point begun() const noexcept { return begun_; }
  std::stop_token ended() const { return ended_.get_token(); }
  std::stop_token fitted() const { return fitted_.get_token(); }
  std::stop_token closed() const { return closed_.get_token(); }
  /// kTime or kStopped, whichever requested ended() first, but kStopped if `stop` said yes later.
  std::optional<SearchEnd> cause();
  /// Begins the second stage, and requests ended(). closed() follows half a second and a tenth of the search's time
  /// later, or half a second after `stop` says yes, and fitted() after half of that time. Without a limit of time only
  /// `stop` requests them. A second call changes nothing.
  void close();

 private:
  void look();
  void attend(const std::function<void()>& callback);
  void closeBy(Clock::time_point end);

  const std::function<bool()> stop_;
  const Clock::time_point begun_;
  const double seconds_;
  std::optional<Clock::time_point> end_;  ///< of the first stage
  std::stop_source ended_, fitted_, closed_;
  std::exception_ptr failure_;  ///< of a callback; of the thread of run()

  std::mutex mutex_;  ///< for the rest
  std::condition_variable changed_;
  const std::function<void()>* callback_ = nullptr;  ///< that waits to be run
  bool is_done_ = false;
  std::optional<SearchEnd> cause_;
  std::optional<Clock::time_point> closing_begun_, closing_end_;
};

}  // namespace srjit::search
