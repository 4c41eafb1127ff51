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
  double compiled = 0;   ///< of the device, per node-row
  double compile = 0;    ///< of one core, per node, from graph to loaded kernel
};

/// What to expect before anything was measured: an H200, f32 fast, population "mixed", losses. docs/performance.md has
/// 4.95 and 9.5 T node-rows a second (arithmetic 10.1 and 21.8), and 3.1 ms of a core for an expression of 30 nodes;
/// where f64 or library functions make both tiers slower, they do so alike.
inline constexpr DeviceCosts kTypicalCosts = {.interpret = 1 / 4.95e12, .compiled = 1 / 9.5e12, .compile = 100e-6};

/// Time from the first graph to the last loaded kernel: kernels are made whole, one on a core.
constexpr double compileSeconds(const DeviceCosts& costs, double nodes, std::size_t kernels, std::size_t cores) {
  const std::size_t rounds = (kernels + cores - 1) / cores;
  return kernels == 0 ? 0 : static_cast<double>(rounds) * costs.compile * nodes / static_cast<double>(kernels);
}

/// Whether making machine code beside the interpreter is worth beginning: it is there before the expected evaluations
/// are over, and faster by enough to be sure of it.
constexpr bool compilingPays(const DeviceCosts& costs, double passes, double node_rows, double compile_seconds) {
  return passes * node_rows * costs.interpret > compile_seconds && costs.compiled < 0.9 * costs.interpret;
}

/// Thread-safe. Best effort: without a disk it begins anew in every process.
class Calibration {
 public:
  /// `name` says for which device, precision and mode.
  Calibration(std::shared_ptr<KernelCache> cache, std::string name);

  DeviceCosts costs() const;

  /// What one evaluation took; small ones, which show the launch rather than the work, are left out.
  void addRun(bool compiled, double node_rows, double seconds);
  /// What making machine code took; kernels that came from the cache are to be left out.
  void addCompile(double nodes, double core_seconds);

 private:
  void add(double DeviceCosts::* field, double value);

  std::shared_ptr<KernelCache> cache_;
  std::string name_;
  mutable std::mutex mutex_;
  DeviceCosts costs_ = kTypicalCosts;
  DeviceCosts written_;  ///< what the disk has
};

}  // namespace srjit
