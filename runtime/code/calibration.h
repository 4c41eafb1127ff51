// What evaluating and making code cost on this machine: measured in use, kept from one process to the next.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/cache/kernels.h"
#include "runtime/code/costs.h"

namespace srjit {

/// The costs of one device, precision and mode: the typical ones, moved by every measurement. Whenever they have
/// changed enough, one background task writes them, never two at once. Thread-safe. Without a disk every process starts
/// from the typical ones.
class Calibration {
 public:
  /// Runs a task that does not throw in the background, before this object is destroyed. May throw.
  using Post = std::function<void(std::function<void()> task)>;
  /// `name` says for which device, precision and mode. Without `post`, only write() writes.
  Calibration(std::shared_ptr<KernelCache> cache, std::string name, const DeviceCosts& typical = kTypicalCosts,
              Post post = nullptr);

  DeviceCosts costs() const;

  /// Records the seconds of the device that one evaluation took by code whose cost is `tier`: interpret, direct or
  /// compiled. Small evaluations are left out, since they show the launch rather than the work.
  void addRun(double DeviceCosts::* tier, double node_rows, double seconds);
  /// Records the seconds of one core that making machine code took. `making` is write or compile. Kernels that came
  /// from the cache must be left out.
  void addMaking(double DeviceCosts::* making, double nodes, double core_seconds);

  /// Whether the costs have changed enough since write() to be written.
  bool hasChanged() const noexcept { return has_changed_; }
  /// Writes the costs to the disk, in one transaction, if they have changed.
  void write();

 private:
  void add(double DeviceCosts::* field, double value);
  void writeInBackground();

  std::shared_ptr<KernelCache> cache_;
  std::string name_;
  Post post_;
  std::atomic<bool> is_writing_ = false;  ///< a task that writes is queued or runs
  mutable std::mutex mutex_;
  DeviceCosts costs_;
  DeviceCosts written_;  ///< what the disk has
  std::atomic<bool> has_changed_ = false;
  std::mutex writing_mutex_;  ///< one write() after another; locked before mutex_
};

}  // namespace srjit
