#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include <tbb/task_arena.h>

#include "runtime/evaluation/executor.h"
#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

/// Of flightOf().
class TaskFlight final : public Flight {
 public:
  TaskFlight(tbb::task_arena& arena, Task task, RunTask run) : arena_(arena), is_awaited_(task.is_awaited) {
    if (!is_awaited_) shared_->parameters.assign(task.parameters.begin(), task.parameters.end());
    shared_->run = [task = std::move(task), run = std::move(run)](const std::vector<double>& parameters) mutable {
      if (!task.is_awaited) task.parameters = parameters;
      return run(task);
    };
    if (is_awaited_) return;
    // A task that cannot be queued is run by who waits.
    static_cast<void>(guarded([&] {
      arena.enqueue([shared = shared_] {
        if (!shared->is_begun.exchange(true)) shared->finish();
      });
      return okStatus();
    }));
  }
  ~TaskFlight() override {
    if (!is_awaited_) wait();
  }

  bool ready() override {
    const std::lock_guard lock(shared_->mutex);
    return shared_->result.has_value();
  }
  void wait() override {
    if (is_awaited_) return shared_->finish();
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
      Result<Losses> made = guarded([&] { return run(parameters); });
      // Releases the captures of `run` before completion is visible to other threads.
      run = nullptr;
      parameters = {};
      const std::lock_guard lock(mutex);
      result.emplace(std::move(made));
      done.notify_all();
    }

    std::atomic<bool> is_begun = false;
    std::vector<double> parameters;
    std::function<Result<Losses>(const std::vector<double>& parameters)> run;
    std::mutex mutex;
    std::condition_variable done;
    std::optional<Result<Losses>> result;
  };
  void awaitResult() {
    std::unique_lock lock(shared_->mutex);
    shared_->done.wait(lock, [this] { return shared_->result.has_value(); });
  }

  tbb::task_arena& arena_;
  const bool is_awaited_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace

std::unique_ptr<Flight> flightOf(tbb::task_arena& arena, Task task, RunTask run) {
  return std::make_unique<TaskFlight>(arena, std::move(task), std::move(run));
}

}  // namespace srjit
