// An evaluation on several devices.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include <tbb/task_arena.h>

#include "runtime/evaluation/executor.h"
#include "runtime/platform/aligned_buffer.h"
#include "runtime/pool/devices.h"
#include "runtime/pool/program.h"

namespace srjit {

/// A task whose shares are in flight on devices. If devices fail, the others evaluate all shares again: at once where a
/// share cannot be started, otherwise in finish(). Works on the threads of an arena.
class PoolFlight final : public Flight {
 public:
  /// `devices`, at least one, work and have the data. They and the arena must outlive it. The task's parameters are
  /// borrowed until keepParameters().
  PoolFlight(PoolDevices& pool, tbb::task_arena& arena, Task task, DeviceNumbers devices);

  /// Starts losses; evaluates predictions. Called once, first. Errors: those of PoolDevices::retry().
  Status start();
  /// Copies the parameters.
  void keepParameters();

  bool ready() override;
  void wait() override;
  Result<Losses> finish() override;

 private:
  /// Of a share.
  struct Part {
    std::unique_ptr<Flight> flight;  ///< of a loss; null without expressions
    AlignedBuffer predictions;       ///< that are to go to another device's memory
    std::vector<Failure> failures;   ///< by the expression of the whole task
  };
  Status begin();
  Status beginShare(const PoolShare& share, Executor& executor, Part& part) const;
  Status collect();
  Status take(const PoolShare& share, Part& part);
  void addFailures(const PoolShare& share, std::vector<Failure> failures, Part& part) const;
  std::size_t predictionBytes(std::size_t outputs) const;

  PoolDevices& pool_;
  tbb::task_arena& arena_;
  Task task_;
  std::vector<double> parameters_;
  std::optional<std::size_t> owner_;  ///< of the memory of the output
  DeviceNumbers devices_;             ///< that take part
  std::shared_ptr<const PoolShares> shares_;
  std::vector<Part> parts_;  ///< of the shares; empty if they must begin again
  Losses all_;
};

}  // namespace srjit
