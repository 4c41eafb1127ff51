// Jobs that make code: on the calling thread's behalf, or in the background.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include "ir/error.h"
#include "runtime/code/parts.h"
#include "runtime/platform/deadline.h"
#include "runtime/tiers/policy.h"

namespace srjit {

class RunningJob;

/// Code that at most one thread makes at a time. Once ready it does not change. Thread-safe. A job does not
/// reference its program or engine.
class CodeJob {
 public:
  using Code = std::shared_ptr<const DeviceCode>;
  struct View {
    CodeState state = CodeState::kOpen;
    Code code = {};  ///< of kReady
    std::optional<Error> error =
        {};              ///< of kFailed, and of kOpen after the making was cancelled or ended at a deadline
    double seconds = 0;  ///< that the last making took
  };
  View view() const;

  /// Asks the thread that makes the code to stop. The job is open again when the making has ended.
  void cancel() noexcept { cancelled_ = true; }
  bool isCancelled() const noexcept { return cancelled_; }

 private:
  friend class JobQueue;
  friend class RunningJob;
  CodeState stateLocked() const noexcept;

  std::atomic<bool> cancelled_ = false;
  mutable std::mutex mutex_;  ///< of what follows
  std::condition_variable ended_;
  bool running_ = false;
  Code code_;
  std::optional<Error> error_;
  double seconds_ = 0;
};

/// The jobs of one engine. Every job that was started ends before shutDown() returns, with code or an error.
/// Thread-safe.
class JobQueue {
 public:
  using Code = CodeJob::Code;
  /// Makes the code. Once `cancelled`, it may stop early, and its result is dropped. Exceptions become errors; after
  /// one of kLimit, the deadline of a call, the job is open again.
  using Make = std::function<Result<Code>(const std::atomic<bool>& cancelled)>;

  /// Background work has all threads but one, and at least one.
  explicit JobQueue(unsigned threads);
  ~JobQueue() { shutDown(); }
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  /// Makes a job's code in the background, unless the job is running, ready or failed. The job runs when this returns.
  /// Throws std::bad_alloc, and leaves the job open then.
  void start(const std::shared_ptr<CodeJob>& job, Make make);
  /// The code of a job: waits while the job is running; if there is no code then, makes it in `arena`. Meanwhile the
  /// calling thread runs no other tasks of that arena, since one of them could wait for this job. At the deadline it
  /// stops waiting, which throws an ErrorException (kLimit), or cancels what it makes; a job that another thread makes
  /// goes on.
  Result<Code> join(const std::shared_ptr<CodeJob>& job, tbb::task_arena& arena, const Make& make,
                    const Deadline& deadline = {});
  /// Runs `work` in the background; shutDown() waits for it, and does not cancel it. `work` must not throw. Throws
  /// std::bad_alloc.
  void post(std::function<void()> work);

  /// Where background work runs.
  tbb::task_arena& background() noexcept { return background_; }
  /// Becomes true when shutDown() begins.
  const std::atomic<bool>& isShutDown() const noexcept { return is_shut_down_; }
  /// Cancels the jobs that were started, and waits for all background work, also for work that is posted meanwhile.
  void shutDown();

 private:
  std::atomic<bool> is_shut_down_ = false;
  tbb::task_arena background_;
  std::unique_ptr<tbb::task_group> group_ = std::make_unique<tbb::task_group>();  ///< its own destructor may throw
  std::mutex mutex_;
  std::vector<std::weak_ptr<RunningJob>> started_;  ///< and not ended: another queue may run the same job later
};

}  // namespace srjit
