#include "runtime/tiers/cost_recorder.h"

#include "runtime/platform/guarded.h"

namespace srjit {

void CostRecorder::recordRunTime(double DeviceCosts::* tier, double node_rows, double seconds) {
  calibration_.addRun(tier, node_rows, seconds);
  writeInBackground();
}

void CostRecorder::recordMakingTime(double DeviceCosts::* making, double nodes, double core_seconds) {
  calibration_.addMaking(making, nodes, core_seconds);
  writeInBackground();
}

// Another process may hold the lock of the disk's file, so no thread that evaluates writes. Where the task cannot be
// queued, the next change is written with this one.
void CostRecorder::writeInBackground() {
  if (!calibration_.hasChanged() || is_writing_.exchange(true)) return;
  const Status queued = guarded([this] {
    queue_.post([this] {
      Status written = okStatus();
      do {
        written = guarded([this] { return calibration_.write(), okStatus(); });
        is_writing_ = false;
      } while (written && calibration_.hasChanged() && !is_writing_.exchange(true));
    });
    return okStatus();
  });
  if (!queued) is_writing_ = false;
}

}  // namespace srjit
