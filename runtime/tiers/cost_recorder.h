// The costs of an engine's tiers, and writing them to the disk in the background.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "runtime/code/calibration.h"
#include "runtime/code/parts.h"
#include "runtime/tiers/jobs.h"

namespace srjit {

/// Records measurements. Whenever costs have changed enough, one background task writes them, never two at once. The
/// queue must be shut down before this object is destroyed. Thread-safe.
class CostRecorder {
 public:
  CostRecorder(std::shared_ptr<KernelCache> cache, std::string name, JobQueue& queue)
      : calibration_(std::move(cache), std::move(name)), queue_(queue) {}

  DeviceCosts costs() const { return calibration_.costs(); }

  /// An evaluation by `code` took `seconds` of the device. Evaluations by more than one kind of code are left out.
  void recordRunTime(const DeviceCode& code, std::size_t rows, double seconds);
  /// Making code took so many seconds of one core; `making` is write or compile.
  void recordMakingTime(double DeviceCosts::* making, double nodes, double core_seconds);

 private:
  void writeInBackground();

  Calibration calibration_;
  JobQueue& queue_;
  std::atomic<bool> is_writing_ = false;  ///< a task that writes is queued or runs
};

}  // namespace srjit
