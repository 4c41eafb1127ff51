// The self-test of the direct tier. NVIDIA documents neither the instructions nor the images that the tier writes, so
// each device and driver is tested before the tier's code is used there.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ir/error.h"
#include "runtime/cache/kernels.h"
#include "runtime/code/kernel_store.h"
#include "runtime/gpu/queue.h"
#include "runtime/platform/clock.h"
#include "runtime/tiers/policy.h"

namespace srjit {

/// Compares direct code with the interpreter's and the CPU's on probes, bit for bit, any NaN being equal to any other.
/// Returns the first difference as text, empty if there is none.
///
/// - Predictions are compared with the interpreter's: every operator of the tier on all pairs of special numbers, then
///   trees of all operators on numbers of all magnitudes. Once with rows cut into parts; once strided and in one part,
///   so that warps go from one row group to the next.
/// - Losses of all shapes (LossSpec) are compared with the CPU's, which needs no assembler: of sums of two columns,
///   whose predictions are exact in every mode; also in parts and in one.
///
/// Calls `begin` before direct code is loaded, after everything else was made ready. Errors: of making the interpreter,
/// for lack of memory, and kCancelled. Throws CudaFailure, OutOfMemory, std::bad_alloc. Needs a current context; in
/// parallel on the calling thread's arena.
Result<std::string> compareDirectCode(const std::shared_ptr<KernelStore>& store, unsigned threads,
                                      const std::function<void()>& begin, const std::atomic<bool>& cancelled);

/// Whether compareDirectCode() finds no difference on this device with this driver. It runs once for each precision and
/// mode, when direct code is first needed. The result is stored beside the kernels, for this device, driver and build
/// of the library, until the cache is cleared. Of processes that share a cache one runs the test at a time; the others
/// wait for it. Direct code that the device does not support may crash the process; "Forks and crashes" in
/// docs/internals/reliability.md says how crashes are counted. Thread-safe.
class DirectSelfTest {
 public:
  /// The result that the cache has of a device: whether it is a failure, and "passed", "not run yet", or why the tier
  /// is off. `identity` as KernelStore::identity().
  static std::pair<bool, std::string> lastResult(KernelCache& cache, const DeviceLimits& limits, Precision precision,
                                                 Math math, std::string_view identity);

  DirectSelfTest(std::shared_ptr<KernelStore> store, unsigned threads);

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
  std::optional<Error> run(FileLock& lock, const std::atomic<bool>& cancelled);
  void settle(const std::string& result);
  void keep(const std::string& result);

  std::shared_ptr<KernelStore> store_;
  unsigned threads_;
  std::string fact_;
  std::mutex running_;
  std::optional<Stopwatch> busy_;  ///< since the wait for another process timed out; under running_
  mutable std::mutex mutex_;
  SelfTestState state_ = SelfTestState::kOpen;
  std::optional<Error> failure_;
};

}  // namespace srjit
