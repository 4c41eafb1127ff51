#include "core/bindings.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace srjit::python {

namespace {

using std::chrono::steady_clock;

// How often a waiting thread looks for signals: less than a person notices.
constexpr std::chrono::milliseconds kSignalInterval{20};

/// Calls whose waiting was ended early, and which still run. Leaked, since threads may use it at any time.
struct Abandoned {
  std::mutex mutex;
  std::condition_variable none;
  std::size_t count = 0;
};
Abandoned& abandonedCalls() {
  static auto* calls = new Abandoned;
  static pid_t process = getpid();
  if (process != getpid()) {
    // In a child of fork() there are no such threads, and the mutex may be locked for ever.
    calls = new Abandoned;
    process = getpid();
  }
  return *calls;
}

/// A thread that runs calls of the main thread, one at a time.
class Helper {
 public:
  static std::shared_ptr<Helper> start() {
    auto helper = std::make_shared<Helper>();
    std::thread([helper] { helper->serve(); }).detach();
    return helper;
  }

  void begin(std::function<void()> body) {
    const std::lock_guard lock(mutex_);
    body_ = std::move(body);
    is_done_ = false;
    changed_.notify_all();
  }
  bool isDoneWithin(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return is_done_; });
  }
  /// Ends the thread, which runs no call.
  void retire() {
    const std::lock_guard lock(mutex_);
    is_retired_ = true;
    changed_.notify_all();
  }
  /// After isDoneWithin() gave true: throws what the body threw.
  void finish() {
    if (const std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
  }
  /// Leaves a call to itself; gives false if it has ended by now. `owned` is released afterwards.
  bool abandon(nb::object& owned) {
    const std::lock_guard lock(mutex_);
    if (is_done_) return false;
    {
      const std::lock_guard counting(abandonedCalls().mutex);
      ++abandonedCalls().count;
    }
    owned_ = std::move(owned);
    is_abandoned_ = true;
    return true;
  }

 private:
  void serve() {
    for (;;) {
      std::function<void()> body;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return body_ != nullptr || is_retired_; });
        if (is_retired_) return;
        body = std::exchange(body_, nullptr);
      }
      std::exception_ptr error;
      try {
        body();
      } catch (...) {
        error = std::current_exception();
      }
      body = nullptr;
      {
        const std::lock_guard lock(mutex_);
        error_ = error;
        is_done_ = true;
        changed_.notify_all();
        if (!is_abandoned_) continue;
      }
      {
        const nb::gil_scoped_acquire gil;
        owned_ = nb::object();
      }
      const std::lock_guard counting(abandonedCalls().mutex);
      if (--abandonedCalls().count == 0) abandonedCalls().none.notify_all();
      return;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> body_;
  bool is_done_ = true, is_abandoned_ = false, is_retired_ = false;
  std::exception_ptr error_;
  nb::object owned_;
};

/// That of the main thread, null while it runs a call. A child process does not inherit the thread of its parent's.
std::shared_ptr<Helper>& idleHelper() {
  static auto* const helper = new std::shared_ptr<Helper>;
  static pid_t process = 0;
  if (process != getpid()) {
    // The parent's may have been in use at the fork, so it is never touched again.
    new (helper) std::shared_ptr<Helper>;
    process = getpid();
  }
  return *helper;
}
/// A handler of a signal may call again while a call waits: that call has a helper of its own.
std::shared_ptr<Helper> takeHelper() {
  std::shared_ptr<Helper> helper = std::exchange(idleHelper(), nullptr);
  return helper != nullptr ? helper : Helper::start();
}
void putBack(const std::shared_ptr<Helper>& helper) {
  if (idleHelper() == nullptr) {
    idleHelper() = helper;
  } else {
    helper->retire();
  }
}

bool isMainThread() { return gettid() == getpid(); }

void throwIfSignalled() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace

void callWithoutGil(std::function<void()> body, nb::object owned, std::stop_source* stop) {
  if (!isMainThread()) {
    const nb::gil_scoped_release free;
    body();
    return;
  }
  const std::shared_ptr<Helper> helper = takeHelper();
  helper->begin(std::move(body));
  for (;;) {
    {
      const nb::gil_scoped_release free;
      if (helper->isDoneWithin(kSignalInterval)) break;
    }
    try {
      throwIfSignalled();
    } catch (...) {
      if (stop != nullptr) stop->request_stop();
      if (!helper->abandon(owned)) putBack(helper);
      throw;
    }
  }
  putBack(helper);
  helper->finish();
}

void waitUntil(const std::function<bool()>& is_ready) {
  const auto start = steady_clock::now();
  auto looked = start;
  for (;;) {
    {
      const nb::gil_scoped_release free;
      for (;;) {
        if (is_ready()) return;
        const auto now = steady_clock::now();
        if (now - looked > kSignalInterval) {
          looked = now;
          break;
        }
        // Sleeps for little of the time that it has waited, so that little is lost at the end.
        const auto pause = std::min<steady_clock::duration>((now - start) / 64, std::chrono::milliseconds(1));
        if (pause < std::chrono::microseconds(20)) {
          std::this_thread::yield();
        } else {
          std::this_thread::sleep_for(pause);
        }
      }
    }
    throwIfSignalled();
  }
}

void finishCalls() {
  Abandoned& calls = abandonedCalls();
  for (;;) {
    {
      const nb::gil_scoped_release free;
      std::unique_lock lock(calls.mutex);
      if (calls.none.wait_for(lock, kSignalInterval, [&] { return calls.count == 0; })) return;
    }
    if (PyErr_CheckSignals() == 0) continue;
    // Another Ctrl-C: the process ends without the results, as it would without a handler.
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
}

}  // namespace srjit::python
