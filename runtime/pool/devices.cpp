#include "runtime/pool/devices.h"

#include <utility>

#include <fmt/format.h>

#include "runtime/platform/guarded.h"

namespace srjit {

PoolDevices::PoolDevices(std::vector<PoolDevice> devices) : devices_(std::move(devices)), lost_(devices_.size()) {}

std::vector<std::size_t> PoolDevices::working() const {
  std::vector<std::size_t> numbers;
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
