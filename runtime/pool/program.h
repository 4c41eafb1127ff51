// Programs on several devices.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/engine_options.h"
#include "runtime/evaluation/program_state.h"
#include "runtime/pool/devices.h"

namespace srjit {

/// Divides the expressions into adjacent ones for devices that take this many seconds per token, all above 0: device i
/// gets those from the i-th number to the next, so that all devices take about as long. Code of outputs counts as
/// ProgramSource::lengthFactor() has it. One number more than there are devices, ascending.
std::vector<std::size_t> divideExpressions(const ProgramSource& source, std::span<const double> seconds_per_token);

/// Adjacent expressions of a program, as a program of one device. The numbers are those of its first expression, output
/// and parameter in the whole program.
struct PoolShare {
  std::size_t device = 0;
  std::size_t expression = 0, output = 0, parameter = 0;
  std::shared_ptr<const ProgramSource> source;
  std::optional<Program> program = {};  ///< not set until the device has made it, or without expressions

  /// What the device has to do of a task of the whole program: its expressions, parameters and data. No output.
  Task of(const Task& task) const;
  /// Adds failures of the share to those of the whole program.
  void addFailures(std::span<const Failure> own, std::vector<Failure>& all) const;
};

/// One share for each device, in order, of all expressions in order. Constant once others have it.
using PoolShares = std::vector<PoolShare>;

/// Data of several devices, in their order: the same numbers on each, null where they could not be placed.
struct PoolData final : Residence {
  std::vector<std::shared_ptr<const Dataset::State>> replicas;

  SubtreeStats subtrees() const override;
};
/// The data that a pool has placed; of other data none.
std::span<const std::shared_ptr<const Dataset::State>> replicasOf(const Dataset::State& data);
/// What a device has of data; null if it could not be placed there.
inline std::shared_ptr<const Dataset::State> replicaOn(const Dataset::State& data, std::size_t device) {
  const auto replicas = replicasOf(data);
  return device < replicas.size() ? replicas[device] : nullptr;
}

/// The program of a pool: its shares for each set of devices that evaluated it. Keeps those of the most recently used
/// sets. Thread-safe; a call may wait while another makes shares, until its deadline (lockUntil()).
class PoolProgram final : public ProgramCode {
 public:
  PoolProgram(std::shared_ptr<const ProgramSource> source, Tier tier, CompileOptions options);

  /// The shares for these devices, with programs; new programs may read values that are kept with `data`. Works on the
  /// calling thread's arena. Errors: those of PoolDevices::onEach(), which drops devices that could not make their
  /// program; the next call asks them again. Throws an ErrorException (kLimit) at the deadline.
  Result<std::shared_ptr<const PoolShares>> sharesOn(PoolDevices& pool, DeviceNumbers& devices, const Dataset* data,
                                                     const Deadline& deadline);
  /// The shares that sharesOn() gave last, also where programs are missing.
  std::shared_ptr<const PoolShares> shares() const;

  /// Program::status() of all shares() together: the slowest tier, and times of the device that took longest.
  ProgramStatus status() const override;
  /// Adds the facts of Program::info() that compiling finds out, and the failures.
  void describe(Program::State& state) const;

 private:
  using Division = std::pair<DeviceNumbers, std::shared_ptr<const PoolShares>>;
  static constexpr std::size_t kMostDivisions = 8;

  void addCounters(ProgramInfo& info, ProgramStatus& status) const;
  std::shared_ptr<const PoolShares> divide(const PoolDevices& pool, const DeviceNumbers& devices) const;
  Program compile(const PoolShare& share, const PoolDevices& pool, const Dataset* data, const Deadline& deadline) const;

  const std::shared_ptr<const ProgramSource> source_;
  const Tier tier_;
  CompileOptions options_;  ///< without data
  mutable std::timed_mutex mutex_;
  std::vector<Division> divisions_;  ///< the least recently used first
};

/// The code that a pool has made. Precondition: it has made some.
inline PoolProgram& poolProgramOf(const Program& program) noexcept {
  return static_cast<PoolProgram&>(*program.state().code);
}

}  // namespace srjit
