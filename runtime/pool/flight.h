// An evaluation on several devices.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <tbb/task_arena.h>

#include "runtime/evaluation/executor.h"
#include "runtime/platform/aligned_buffer.h"
#include "runtime/pool/devices.h"
#include "runtime/pool/program.h"

namespace srjit {

/// A share in flight, or what it gave.
struct PoolPart {
  std::shared_ptr<PoolShare> share;
  AlignedBuffer predictions;  ///< of the share, if they go to another device's memory
  std::unique_ptr<Flight> flight;
  std::optional<Losses> done = {};
  std::vector<Failure> failures = {};  ///< of finish(), by the expression of the task
};

/// A task whose shares are in flight. Shares of devices that cannot evaluate them go to others: at once where they
/// cannot be started, otherwise in finish(). Works on the threads of an arena.
class PoolFlight final : public Flight {
 public:
  enum class Way {
    kAsync,  ///< begin() returns before the work is done
    /// begin() evaluates predictions on its threads. It may run on one of oneTBB's, which must not wait for a task that
    /// none of them is left to run.
    kBlocking,
  };
  /// Devices and arena must outlive it. The task's parameters are borrowed until keepParameters().
  PoolFlight(PoolDevices& devices, tbb::task_arena& arena, Task task, Way way);

  /// Starts the shares. Called once, first. Errors: those of a device's start(), if no other device can do it.
  Status begin();
  /// Copies the parameters.
  void keepParameters();

  bool ready() override;
  void wait() override;
  Result<Losses> finish() override;

 private:
  Result<PoolPart> start(const std::shared_ptr<PoolShare>& share) const;
  Status beginShare(const std::shared_ptr<PoolShare>& share, std::vector<PoolPart>& parts) const;
  Status beginOthers(PoolShare& share, const Error& error, std::vector<PoolPart>& parts) const;
  Result<Losses> collect();
  /// Takes what parts gave; what failed for a device's sake is done by others.
  Status finishParts(std::span<PoolPart> parts);
  /// Puts what a part gave in its place; on several threads at once, of different parts.
  Status take(PoolPart& part);
  /// Bytes of the predictions of so many outputs.
  std::size_t predictionBytes(std::size_t outputs) const;

  PoolDevices& devices_;
  tbb::task_arena& arena_;
  const PoolCompiler compiler_;
  Task task_;
  const Way way_;
  std::optional<std::size_t> owner_;  ///< of the memory of the output
  std::vector<double> parameters_;
  std::vector<PoolPart> parts_;
  Losses all_;  ///< of all shares
};

/// The part of a task that is a share's: its program, data and parameters. Errors: kMachine if the share's device does
/// not have these, and cannot make the program either (PoolCompiler::programOf).
Result<Task> shareOf(const Task& task, PoolShare& share, const PoolDevices& devices, const PoolCompiler& compiler);

}  // namespace srjit
