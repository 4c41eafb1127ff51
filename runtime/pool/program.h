// Programs on several GPUs at once. The phases of a call, for a loss:
//
//   PoolExecutor::devicesOf(data)    the devices that work and have the data
//   PoolDevices::retry(devices)      the call on these, and again without those that fail, until it succeeds
//     PoolProgram::sharesOn(devices)   divideExpressions() by Executor::estimate(); a Program on each device
//     PoolFlight::begin()              Executor::start() of each share
//     PoolFlight::collect()            Flight::finish() of each share; its results go to their place
//
// Predictions have Executor::run() of each share instead of the last two. upload(), adopt() and select() place the data
// on each device; a device that fails has none, and takes no part in calls on these data.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/error.h"
#include "runtime/engine_options.h"
#include "runtime/evaluation/executor.h"
#include "runtime/evaluation/program_state.h"
#include "runtime/platform/guarded.h"

namespace srjit {

/// Numbers of devices, ascending.
using DeviceNumbers = std::vector<std::size_t>;

/// A device and what evaluates there.
struct PoolDevice {
  std::string name;  ///< "cuda:1"
  std::unique_ptr<Executor> executor;
};

/// Devices by number, from 0 on, in the order of their list. A device that is lost stays lost. Thread-safe.
class PoolDevices {
 public:
  explicit PoolDevices(std::vector<PoolDevice> devices);

  std::size_t size() const noexcept { return devices_.size(); }
  Executor& operator[](std::size_t device) const noexcept { return *devices_[device].executor; }
  const std::string& name(std::size_t device) const noexcept { return devices_[device].name; }

  /// Those that are not lost.
  DeviceNumbers working() const;
  /// The device whose memory this is; nothing if it is no device's, or that of a lost one.
  std::optional<std::size_t> ownerOf(std::uint64_t address) const;

  /// body(executor of the device), whose exceptions become errors. After an error of kMachine the pool asks the device
  /// whether it is lost; a loss is a notice.
  template <class Body>
  auto call(std::size_t device, const Body& body) {
    auto result = guarded([&] { return body(*devices_[device].executor); });
    if (!result && result.error().code == Errc::kMachine) noteFailure(device, result.error());
    return result;
  }

  /// body(i, executor of devices[i]) for all i at the same time, each by call(), on the calling thread's arena. Devices
  /// that fail with kMachine then leave `devices`. Errors: the first of another code, otherwise the first.
  Status onEach(DeviceNumbers& devices, const std::function<Status(std::size_t i, Executor& executor)>& body);

  /// Calls attempt() until it succeeds, or fails for another reason than devices that left `devices`, which is not
  /// empty. Errors: those of the last attempt; noneLeft().
  template <class Attempt>
  auto retry(const DeviceNumbers& devices, const Attempt& attempt) {
    for (;;) {
      const std::size_t tried = devices.size();
      auto result = attempt();
      if (result || result.error().code != Errc::kMachine || devices.size() == tried) return result;
      if (devices.empty()) return working().empty() ? decltype(result)(noneLeft()) : std::move(result);
    }
  }

  /// The error of a call when no device works.
  Error noneLeft() const;
  std::vector<std::string> notices() const;

 private:
  bool isLost(std::size_t device) const noexcept { return lost_[device].load(std::memory_order_acquire); }
  void noteFailure(std::size_t device, const Error& error);

  std::vector<PoolDevice> devices_;
  std::deque<std::atomic<bool>> lost_;
  mutable std::mutex mutex_;
  std::vector<std::string> notices_;
  std::optional<Error> last_;  ///< with which the last device was lost
};

/// Divides the expressions into adjacent ones for devices that take this many seconds for all of them, above 0: device
/// i gets those from the i-th number to the next, so that all devices take about as long. Code of outputs counts as
/// ProgramSource::lengthFactor() has it. One number more than there are devices, ascending.
std::vector<std::size_t> divideExpressions(const ProgramSource& source, std::span<const double> seconds_of_all);

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
using Replicas = std::vector<std::shared_ptr<const Dataset::State>>;
std::shared_ptr<Residence> residenceOf(Replicas replicas);
/// The replicas of data that a pool has placed; of other data none.
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

  struct Counters;
  Counters counters(const ProgramInfo& info) const;
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

/// An executor that divides the expressions of every program among the devices. Each device has all data: in its
/// memory, or streamed to it from host memory. A device that fails, because it is lost or short of memory, takes no
/// further part in the call; the others evaluate everything again. Of the options it takes the name of all devices,
/// the precision, and the number of threads that serve all devices.
std::unique_ptr<Executor> makePoolExecutor(const EngineOptions& options, std::vector<PoolDevice> devices);

}  // namespace srjit
