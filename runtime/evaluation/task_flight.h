// A task that one thread of an arena runs.
#pragma once

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

/// Runs `run`, which returns Result<Losses>.
class TaskFlight final : public Flight {
 public:
  TaskFlight(tbb::task_arena& arena, std::function<Result<Losses>()> run) {
    shared_->run = std::move(run);
    arena.enqueue([shared = shared_] {
      Result<Losses> result = guarded(shared->run);
      // Releases the captures of `run` before completion is visible to other threads.
      shared->run = nullptr;
      const std::lock_guard lock(shared->mutex);
      shared->result.emplace(std::move(result));
      shared->done.notify_all();
    });
  }
  ~TaskFlight() override { wait(); }

  bool ready() override {
    const std::lock_guard lock(shared_->mutex);
    return shared_->result.has_value();
  }
  void wait() override {
    std::unique_lock lock(shared_->mutex);
    shared_->done.wait(lock, [this] { return shared_->result.has_value(); });
  }
  Result<Losses> finish() override {
    wait();
    return std::move(*shared_->result);
  }

 private:
  struct Shared {
    std::function<Result<Losses>()> run;
    std::mutex mutex;
    std::condition_variable done;
    std::optional<Result<Losses>> result;
  };
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace srjit
