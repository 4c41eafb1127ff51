// Which share of a population a device encodes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>

#include "runtime/code/costs.h"

namespace srjit {

/// The share that a device encodes while the host's threads encode the rest, so that both end at about the same time:
/// by the costs of both (costs.h), until it is known what they took. Thread-safe.
class DeviceShare {
 public:
  /// Neither share is smaller: what is encoded shows what it takes.
  static constexpr double kLeastOfDevice = 0.25, kMostOfDevice = 0.95;

  double of(unsigned threads, unsigned multiprocessors) const noexcept {
    const double ratio = ratio_.load(std::memory_order_relaxed);
    const double share = ratio == 0 ? shareOfDevice(threads, multiprocessors) : ratio / (1 + ratio);
    return std::clamp(share, kLeastOfDevice, kMostOfDevice);
  }

  /// What one of them has encoded, and how long that took.
  struct Work {
    std::size_t expressions;
    double seconds;
    bool isMeasured() const noexcept { return expressions > 0 && seconds > 0; }
    double rate() const noexcept { return static_cast<double>(expressions) / seconds; }
  };
  /// Takes a population into account, as much as all before it: one may be out of the ordinary. Of two calls at once,
  /// one may be lost.
  void record(const Work& device, const Work& host) noexcept {
    if (!device.isMeasured() || !host.isMeasured()) return;
    const double measured = device.rate() / host.rate(), known = ratio_.load(std::memory_order_relaxed);
    ratio_.store(known == 0 ? measured : std::sqrt(known * measured), std::memory_order_relaxed);
  }

 private:
  /// How many times as many expressions the device encodes as the host, in the same time; 0: unknown.
  std::atomic<double> ratio_ = 0;
};

}  // namespace srjit
