// What evaluating and compiling cost on this machine: measured in use, kept from one process to the next.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/kernel_cache.h"

namespace srjit {

/// Seconds. Nodes are the tokens of expressions as they were given; a node-row is one of them for one row.
struct DeviceCosts {
  double interpret = 0;  ///< of the device, per node-row
  double direct = 0;     ///< of the device, per node-row
  double compiled = 0;   ///< of the device, per node-row
  double write = 0;      ///< of one core, per node, from expression to loaded direct code
  double compile = 0;    ///< of one core, per node, from graph to loaded kernel
};

/// What to expect before anything was measured: an H200, f32 fast, population "mixed", losses. docs/performance.md has
/// 4.95 and 9.5 T node-rows a second (arithmetic 10.1 and 21.8), and 3.1 ms of a core for an expression of 30 nodes;
/// where f64 or library functions make the tiers slower, they do so alike.
inline constexpr DeviceCosts kTypicalCosts = {
    .interpret = 1 / 4.95e12, .direct = 1 / 8e12, .compiled = 1 / 9.5e12, .write = 1e-6, .compile = 100e-6};

/// Time from the first graph to the last loaded kernel: kernels are made whole, one on a core.
constexpr double compileSeconds(const DeviceCosts& costs, double nodes, std::size_t kernels, std::size_t cores) {
  const std::size_t rounds = (kernels + cores - 1) / cores;
  return kernels == 0 ? 0 : static_cast<double>(rounds) * costs.compile * nodes / static_cast<double>(kernels);
}

/// Whether making code that takes `better` a node-row is worth beginning beside code that takes `serving`: it is there
/// before the expected evaluations are over, and faster by enough to be sure of it.
constexpr bool makingPays(double serving, double better, double passes, double node_rows, double making_seconds) {
  return passes * node_rows * serving > making_seconds && better < 0.9 * serving;
}

/// Thread-safe. Best effort: without a disk it begins anew in every process.
class Calibration {
 public:
  /// `name` says for which device, precision and mode.
  Calibration(std::shared_ptr<KernelCache> cache, std::string name);

  DeviceCosts costs() const;

  /// What one evaluation took by code whose cost is `tier`; small ones, which show the launch rather than the work, are
  /// left out.
  void addRun(double DeviceCosts::* tier, double node_rows, double seconds);
  /// What making machine code took, `making` being write or compile; kernels that came from the cache are to be left
  /// out.
  void addMaking(double DeviceCosts::* making, double nodes, double core_seconds);

 private:
  void add(double DeviceCosts::* field, double value);

  std::shared_ptr<KernelCache> cache_;
  std::string name_;
  mutable std::mutex mutex_;
  DeviceCosts costs_ = kTypicalCosts;
  DeviceCosts written_;  ///< what the disk has
};

}  // namespace srjit
