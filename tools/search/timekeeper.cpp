#include "tools/search/timekeeper.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/platform/deadline.h"

namespace srjit::search {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr std::chrono::milliseconds kBetweenLooks{20};
// A search promises to end within a fifth of its time and a second, one that is stopped within a second. Half of this
// is for closing; the rest is for what cannot be interrupted: set-up, kernels that a device has begun, busy machines.
constexpr std::chrono::milliseconds kClosing{500};
constexpr double kClosingShare = 0.1;

Timekeeper::Clock::duration durationOf(double seconds) {
  return std::chrono::duration_cast<Timekeeper::Clock::duration>(Seconds(seconds));
}

}  // namespace

Timekeeper::Timekeeper(std::function<bool()> stop, Clock::time_point begun, double seconds)
    : stop_(std::move(stop)), begun_(begun), seconds_(seconds) {
  if (seconds > 0 && seconds < Deadline::kLongest) end_ = begun + durationOf(seconds);
}

void Timekeeper::run(const std::function<void()>& work) {
  std::exception_ptr failure;
  std::jthread worker([&] {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    is_done_ = true;
    changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  while (!is_done_) {
    changed_.wait_for(lock, kBetweenLooks, [&] { return is_done_ || callback_ != nullptr; });
    const std::function<void()>* const callback = callback_;
    lock.unlock();
    if (callback != nullptr) attend(*callback);
    look();
    lock.lock();
    if (callback == nullptr) continue;
    callback_ = nullptr;
    changed_.notify_all();
  }
  lock.unlock();
  worker.join();
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  if (failure != nullptr) std::rethrow_exception(failure);
}

void Timekeeper::onCaller(const std::function<void()>& callback) {
  std::unique_lock lock(mutex_);
  callback_ = &callback;
  changed_.notify_all();
  changed_.wait(lock, [&] { return callback_ == nullptr; });
}

std::optional<SearchEnd> Timekeeper::cause() {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void Timekeeper::close() {
  ended_.request_stop();
  const std::lock_guard lock(mutex_);
  if (closing_begun_) return;
  const Clock::time_point now = Clock::now();
  closing_begun_ = now;
  if (cause_ == SearchEnd::kStopped) {
    closeBy(now + kClosing);
  } else if (end_) {
    closeBy(std::max(now, *end_) + kClosing + durationOf(kClosingShare * seconds_));
  }
}

void Timekeeper::closeBy(Clock::time_point end) { closing_end_ = std::min(closing_end_.value_or(end), end); }

// A callback that throws ends the search at once.
void Timekeeper::attend(const std::function<void()>& callback) {
  if (failure_ != nullptr) return;
  try {
    callback();
  } catch (...) {
    failure_ = std::current_exception();
    ended_.request_stop();
    fitted_.request_stop();
    closed_.request_stop();
  }
}

void Timekeeper::look() {
  bool is_stopped = false;
  {
    const std::lock_guard lock(mutex_);
    is_stopped = cause_ == SearchEnd::kStopped;
  }
  if (stop_ && !is_stopped) attend([&] { is_stopped = stop_(); });
  const Clock::time_point now = Clock::now();
  const bool is_late = end_ && now >= *end_;
  bool is_fitted = false, is_closed = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_stopped && cause_ != SearchEnd::kStopped) {
      cause_ = SearchEnd::kStopped;
      if (closing_begun_) closeBy(now + kClosing);
    }
    if (is_late && !cause_) cause_ = SearchEnd::kTime;
    is_closed = closing_end_ && now >= *closing_end_;
    is_fitted = closing_end_ && now >= *closing_begun_ + (*closing_end_ - *closing_begun_) / 2;
  }
  if (is_stopped || is_late) ended_.request_stop();
  if (is_fitted) fitted_.request_stop();
  if (is_closed) closed_.request_stop();
}

}  // namespace srjit::search
