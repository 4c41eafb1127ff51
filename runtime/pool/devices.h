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
#include <string>
#include <vector>

#include "ir/error.h"
#include "runtime/engine_options.h"
#include "runtime/evaluation/executor.h"
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

/// An executor that divides the expressions of every program among the devices. Each device has all data: in its
/// memory, or streamed to it from host memory. A device that fails, because it is lost or short of memory, takes no
/// further part in the call; the others evaluate everything again. Of the options it takes the name of all devices,
/// the precision, and the number of threads that serve all devices.
std::unique_ptr<Executor> makePoolExecutor(const EngineOptions& options, std::vector<PoolDevice> devices);

}  // namespace srjit
