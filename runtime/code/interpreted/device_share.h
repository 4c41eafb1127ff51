// Which share of a population a device encodes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>

namespace srjit {

/// The share that a device encodes while the host's threads encode the rest, so that both end at about the same time.
/// At first it is the share by the costs of both (shareOfDevice() in costs.h), then what both took decides.
/// Thread-safe.
class DeviceShare {
 public:
  /// By what is known so far, but at least a quarter of the share by costs, and at most this: what is encoded shows
  /// what it takes.
  static constexpr double kMost = 0.95;
  double of(double by_costs) const noexcept {
    const double ratio = ratioFrom(by_costs);
    return std::clamp(ratio / (1 + ratio), by_costs / 4, std::max(by_costs, kMost));
  }

  /// What one of them has encoded, and how long that took; what its threads did for others meanwhile is in it.
  struct Work {
    std::size_t expressions;
    double seconds;
    bool isMeasured() const noexcept { return expressions > 0 && seconds > 0; }
    double rate() const noexcept { return static_cast<double>(expressions) / seconds; }
  };
  /// Takes a population into account, as much as what was known before it: one may be out of the ordinary. Of two calls
  /// at once, one may be lost.
  void record(double by_costs, const Work& device, const Work& host) noexcept {
    if (!device.isMeasured() || !host.isMeasured()) return;
    ratio_.store(std::sqrt(ratioFrom(by_costs) * device.rate() / host.rate()), std::memory_order_relaxed);
  }

 private:
  double ratioFrom(double by_costs) const noexcept {
    const double ratio = ratio_.load(std::memory_order_relaxed);
    return ratio == 0 ? by_costs / (1 - by_costs) : ratio;
  }

  /// How many times as many expressions the device encodes as the host, in the same time; 0: unknown.
  std::atomic<double> ratio_ = 0;
};

}  // namespace srjit
