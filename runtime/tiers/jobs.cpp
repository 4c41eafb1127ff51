#include "runtime/tiers/jobs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/platform/clock.h"
#include "runtime/platform/guarded.h"

namespace srjit {

/// A job while it runs. The job ends with this object on every path, so none stays in the state kRunning.
class RunningJob {
 public:
  /// The job's mutex is held.
  explicit RunningJob(std::shared_ptr<CodeJob> job) noexcept : job_(std::move(job)) {
    job_->error_.reset();
    job_->cancelled_ = false;
    job_->running_ = true;
  }
  ~RunningJob() {
    const std::lock_guard lock(job_->mutex_);
    // Without a result there was no memory for one. A job that did not begin is open.
    if (began_ && job_->code_ == nullptr && !job_->error_) {
      job_->error_ = Error{Errc::kMachine, "out of memory", {}};
    }
    job_->running_ = false;
    job_->ended_.notify_all();
  }
  RunningJob(const RunningJob&) = delete;
  RunningJob& operator=(const RunningJob&) = delete;

  void cancel() const noexcept { job_->cancel(); }

  /// Makes the code, and stores the result in the job.
  Result<JobQueue::Code> make(const JobQueue::Make& make) {
    began_ = true;
    const Stopwatch watch;
    auto made = guarded([&] { return make(job_->cancelled_); });
    if (job_->cancelled_) made = Error{Errc::kCancelled, "compiling was cancelled", {}};
    const std::lock_guard lock(job_->mutex_);
    job_->seconds_ = watch.seconds();
    if (made) {
      job_->code_ = *made;
    } else {
      job_->error_ = made.error();
    }
    return made;
  }

 private:
  std::shared_ptr<CodeJob> job_;
  bool began_ = false;
};

// A cancelled job is open: an engine that ends cancels its jobs, but another engine may have the same program. So is
// one that ended at the deadline of a call, since other calls have more time.
CodeState CodeJob::stateLocked() const noexcept {
  if (code_ != nullptr) return CodeState::kReady;
  if (running_) return CodeState::kRunning;
  const bool is_stopped = error_ && (error_->code == Errc::kCancelled || error_->code == Errc::kLimit);
  return !error_ || is_stopped ? CodeState::kOpen : CodeState::kFailed;
}

CodeJob::View CodeJob::view() const {
  const std::lock_guard lock(mutex_);
  return {.state = stateLocked(), .code = code_, .error = error_, .seconds = seconds_};
}

JobQueue::JobQueue(unsigned threads) : background_(static_cast<int>(std::max(threads, 2U)) - 1, 0) {}

void JobQueue::start(const std::shared_ptr<CodeJob>& job, Make make) {
  std::shared_ptr<RunningJob> running;
  {
    const std::lock_guard lock(job->mutex_);
    if (job->stateLocked() != CodeState::kOpen) return;
    running = std::make_shared<RunningJob>(job);
  }
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(started_, [](const auto& started) { return started.expired(); });
    started_.push_back(running);
  }
  // The job ends with the task, whether that runs or not.
  background_.enqueue(group_->defer([make = std::move(make), running = std::move(running)] {
    // An exception would end the process in shutDown(). Out of memory, the job ends with an error of its own.
    (void)guarded([&] { return running->make(make); });
  }));
}

Result<JobQueue::Code> JobQueue::join(const std::shared_ptr<CodeJob>& job, tbb::task_arena& arena, const Make& make,
                                      const Deadline& deadline) {
  std::optional<RunningJob> running;
  {
    std::unique_lock lock(job->mutex_);
    const auto has_ended = [&] { return !job->running_; };
    if (deadline.canEnd()) {
      while (!job->ended_.wait_until(lock, deadline.nextLook(), has_ended)) deadline.check();
      deadline.check();
    } else {
      job->ended_.wait(lock, has_ended);
    }
    if (job->code_ != nullptr) return job->code_;
    running.emplace(job);
  }
  const Alarm alarm(deadline, [&] { running->cancel(); });
  return arena.execute([&] { return tbb::this_task_arena::isolate([&] { return running->make(make); }); });
}

void JobQueue::post(std::function<void()> work) { background_.enqueue(group_->defer(std::move(work))); }

void JobQueue::shutDown() {
  is_shut_down_ = true;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& started : started_) {
      if (const auto running = started.lock()) running->cancel();
    }
  }
  background_.execute([&] { group_->wait(); });
}

}  // namespace srjit
