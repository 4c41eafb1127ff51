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
  /// Clamps the measured share to [by_costs / 4, kMost], so that both sides stay measurable.
  static constexpr double kMost = 0.95;
  double of(double by_costs) const noexcept {
    const double ratio = ratioFrom(by_costs);
    return std::clamp(ratio / (1 + ratio), by_costs / 4, std::max(by_costs, kMost));
  }

  /// The expressions that one side has encoded, and the seconds, with what its threads did for others meanwhile.
  struct Work {
    std::size_t expressions;
    double seconds;
    bool isMeasured() const noexcept { return expressions > 0 && seconds > 0; }
    double rate() const noexcept { return static_cast<double>(expressions) / seconds; }
  };
  /// Takes the geometric mean of a population's ratio and the ratio so far, since one population may be unusual. If two
  /// threads call this at once, one call may be lost.
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
