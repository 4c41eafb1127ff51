// The costs of an engine's tiers, and writing them to the disk in the background.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "runtime/code/calibration.h"
#include "runtime/tiers/jobs.h"

namespace srjit {

/// Records measurements. Whenever costs have changed enough, one background task writes them, never two at once. The
/// queue must be shut down before this object is destroyed. Thread-safe.
class CostRecorder {
 public:
  CostRecorder(std::shared_ptr<KernelCache> cache, std::string name, const DeviceCosts& typical, JobQueue& queue)
      : calibration_(std::move(cache), std::move(name), typical), queue_(queue) {}

  DeviceCosts costs() const { return calibration_.costs(); }

  /// An evaluation by code of a tier took `seconds` of the device. `tier` is interpret, direct or compiled.
  void recordRunTime(double DeviceCosts::* tier, double node_rows, double seconds);
  /// Making code took so many seconds of one core; `making` is write or compile.
  void recordMakingTime(double DeviceCosts::* making, double nodes, double core_seconds);

 private:
  void writeInBackground();

  Calibration calibration_;
  JobQueue& queue_;
  std::atomic<bool> is_writing_ = false;  ///< a task that writes is queued or runs
};

}  // namespace srjit
