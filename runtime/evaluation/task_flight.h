// A task that one thread of an arena runs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <tbb/task_arena.h>

#include "runtime/evaluation/executor.h"
#include "runtime/platform/guarded.h"

namespace srjit {

/// Runs `run`, which returns Result<Losses>: a thread of the arena does, or who waits for it, whoever is first. So it
/// does not depend on a thread that the system may refuse to start.
class TaskFlight final : public Flight {
 public:
  TaskFlight(tbb::task_arena& arena, std::function<Result<Losses>()> run) : arena_(arena) {
    shared_->run = std::move(run);
    // A task that cannot be queued is run by who waits.
    static_cast<void>(guarded([&] {
      arena.enqueue([shared = shared_] {
        if (!shared->is_begun.exchange(true)) shared->finish();
      });
      return okStatus();
    }));
  }
  ~TaskFlight() override { wait(); }

  bool ready() override {
    const std::lock_guard lock(shared_->mutex);
    return shared_->result.has_value();
  }
  void wait() override {
    if (!shared_->is_begun.exchange(true)) {
      const Status entered = guarded([&] { return arena_.execute([&] { shared_->finish(); }), okStatus(); });
      if (!entered) shared_->finish();
    }
    awaitResult();
  }
  Result<Losses> finish() override {
    wait();
    return std::move(*shared_->result);
  }

 private:
  struct Shared {
    // Does nothing the second time.
    void finish() {
      if (run == nullptr) return;
      Result<Losses> made = guarded(run);
      // Releases the captures of `run` before completion is visible to other threads.
      run = nullptr;
      const std::lock_guard lock(mutex);
      result.emplace(std::move(made));
      done.notify_all();
    }

    std::atomic<bool> is_begun = false;
    std::function<Result<Losses>()> run;
    std::mutex mutex;
    std::condition_variable done;
    std::optional<Result<Losses>> result;
  };
  void awaitResult() {
    std::unique_lock lock(shared_->mutex);
    shared_->done.wait(lock, [this] { return shared_->result.has_value(); });
  }

  tbb::task_arena& arena_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace srjit
