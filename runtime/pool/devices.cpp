#include "runtime/pool/devices.h"

#include <utility>

#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

namespace srjit {

PoolDevices::PoolDevices(std::vector<PoolDevice> devices) : devices_(std::move(devices)), lost_(devices_.size()) {}

DeviceNumbers PoolDevices::working() const {
  DeviceNumbers numbers;
  for (std::size_t device = 0; device < size(); ++device) {
    if (!isLost(device)) numbers.push_back(device);
  }
  return numbers;
}

std::optional<std::size_t> PoolDevices::ownerOf(std::uint64_t address) const {
  std::optional<Error> failure;
  for (const std::size_t device : working()) {
    const Result<bool> owns = guarded([&]() -> Result<bool> { return devices_[device].executor->owns(address); });
    if (!owns) failure = owns.error();
    if (owns && *owns) return device;
  }
  if (failure) throw ErrorException(*failure);
  return std::nullopt;
}

// Isolated: a thread that waits for another's device runs no other task of the arena, which might wait for what this
// thread holds.
Status PoolDevices::onEach(DeviceNumbers& devices,
                           const std::function<Status(std::size_t i, Executor& executor)>& body) {
  std::vector<Status> done(devices.size(), okStatus());
  const auto callOne = [&](std::size_t i) {
    done[i] = guarded([&] { return call(devices[i], [&](Executor& executor) { return body(i, executor); }); });
  };
  if (devices.size() == 1) {
    callOne(0);
  } else {
    tbb::this_task_arena::isolate(
        [&] { tbb::parallel_for(std::size_t{0}, devices.size(), callOne, tbb::simple_partitioner()); });
  }
  Status all = okStatus();
  DeviceNumbers left;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const bool has_failed = !done[i] && done[i].error().code == Errc::kMachine;
    if (!has_failed) left.push_back(devices[i]);
    if (!done[i] && (all || (all.error().code == Errc::kMachine && !has_failed))) all = std::move(done[i]);
  }
  devices = std::move(left);
  return all;
}

void PoolDevices::noteFailure(std::size_t device, const Error& error) {
  if (isLost(device) || !devices_[device].executor->isLost()) return;
  const std::lock_guard lock(mutex_);
  if (lost_[device].exchange(true)) return;
  last_ = error;
  const char* const after = working().empty() ? "no device is left" : "the other devices do its share";
  notices_.push_back(fmt::format("device {} is lost: {}; {}", name(device), error.message, after));
}

Error PoolDevices::noneLeft() const {
  const std::lock_guard lock(mutex_);
  return {Errc::kMachine, fmt::format("all devices are lost, the last one with: {}", last_ ? last_->message : ""), {}};
}

std::vector<std::string> PoolDevices::notices() const {
  const std::lock_guard lock(mutex_);
  return notices_;
}

}  // namespace srjit
