// The self-test of the direct tier. NVIDIA documents neither the instructions nor the images that the tier writes, so
// each device and driver is tested before the tier's code is used there.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "ir/error.h"
#include "runtime/cache/kernels.h"
#include "runtime/code/kernel_store.h"
#include "runtime/gpu/queue.h"
#include "runtime/platform/clock.h"
#include "runtime/tiers/policy.h"

namespace srjit {

/// Whether direct code gives the right bits on this device with this driver, as direct_comparison.h says. It runs once
/// for each precision and mode, when direct code is first needed. The result is stored beside the kernels, for this
/// device, driver and build of the library, until the cache is cleared. Of processes that share a cache one runs the
/// test at a time; the others wait for it. Direct code that the device does not support may crash the process;
/// "Forks and crashes" in docs/internals/reliability.md says how crashes are counted. Thread-safe.
class DirectSelfTest {
 public:
  /// What the cache has of a device, for a report.
  struct StoredResult {
    bool failed = false;
    std::string text;  ///< "passed", "not run yet", or why the tier is off
  };
  /// `identity` as KernelStore::identity().
  static StoredResult lastResult(KernelCache& cache, const DeviceLimits& limits, Precision precision, Math math,
                                 std::string_view identity);

  DirectSelfTest(std::shared_ptr<DeviceQueue> queue, std::shared_ptr<KernelStore> store,
                 std::shared_ptr<KernelCache> cache, unsigned threads);

  /// kFailed also where there is no direct code for the device.
  SelfTestState state() const;
  bool isOpen() const { return state() == SelfTestState::kOpen; }
  /// Why the state is kFailed; nothing in the other states.
  std::optional<Error> failure() const;

  /// Runs the test if its state is open; other threads wait meanwhile. Returns why direct code must not be used;
  /// nothing if the test has passed.
  ///
  /// - A failure of CUDA after direct code was loaded is a failure of the test. It is thrown, too, if the device was
  ///   lost with it.
  /// - Failures that the code cannot have caused (no memory) are thrown, and the state stays open.
  /// - The state also stays open, with an Error, where the interpreter cannot be made, where another process does not
  ///   end its test in time, and once `cancelled`.
  ///
  /// Needs a current context. Uses the caller's task arena, but runs no other tasks of it.
  std::optional<Error> ensure(const std::atomic<bool>& cancelled);

  /// The name under which the cache keeps the result and the lock; empty where there is no direct code for the device.
  /// The stored value is "proved", "open", or the difference that was found.
  const std::string& fact() const noexcept { return fact_; }
  /// Seconds to wait for the test of another process, and then to wait before asking for its lock again.
  static constexpr double kPatienceSeconds = 10;
  /// Processes that may crash during the test before it counts as failed. One may have been killed for another reason.
  static constexpr unsigned kMaxCrashes = 2;

 private:
  void recall(const std::string& stored);
  std::optional<Error> run(FileLock& lock, const std::atomic<bool>& cancelled);
  void settle(SelfTestState state, std::string difference);
  void store(SelfTestState state, const std::string& difference);

  std::shared_ptr<DeviceQueue> queue_;
  std::shared_ptr<KernelStore> store_;
  std::shared_ptr<KernelCache> cache_;
  unsigned threads_;
  std::string fact_;
  std::mutex running_;
  std::optional<Stopwatch> busy_;  ///< since the wait for another process timed out; under running_
  mutable std::mutex mutex_;
  SelfTestState state_ = SelfTestState::kOpen;
  std::optional<Error> failure_;
};

}  // namespace srjit
