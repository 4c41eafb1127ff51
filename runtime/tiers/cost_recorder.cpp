#include "runtime/tiers/cost_recorder.h"

#include "runtime/platform/guarded.h"

namespace srjit {

void CostRecorder::recordRunTime(const DeviceCode& code, std::size_t rows, double seconds) {
  const int parts = (code.interpreter ? 1 : 0) + (code.direct ? 1 : 0) + (code.compiled ? 1 : 0);
  if (parts != 1) return;
  const auto tier = code.interpreter ? &DeviceCosts::interpret
                    : code.direct    ? &DeviceCosts::direct
                                     : &DeviceCosts::compiled;
  calibration_.addRun(tier, static_cast<double>(code.report.tokens) * static_cast<double>(rows), seconds);
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
