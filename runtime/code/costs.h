// What evaluating and making code cost, as plain numbers: no state, no device.
#pragma once

#include <cstddef>

#include "ir/numbers/rounding.h"
#include "ir/numeric.h"

namespace srjit {

/// Seconds. Nodes are the tokens of expressions as they were given.
struct DeviceCosts {
  double interpret = 0;  ///< of the device, per node and row
  double direct = 0;     ///< of the device, per node and row
  double compiled = 0;   ///< of the device, per node and row
  double write = 0;      ///< of one core, per node, from expression to loaded direct code
  double compile = 0;    ///< of one core, per node, from graph to loaded kernel
  /// Whether direct code was quicker than the interpreter for every population that was measured, so that a program may
  /// begin with it. Otherwise it begins with the interpreter, and its own evaluations decide (TierFacts).
  bool direct_is_surely_quicker = true;
};

/// The costs before anything was measured: an H200, f32 fast, population "mixed", losses, commit 1283245, but for
/// rounding; later code is as quick or quicker (docs/history/measurements.md). In nodes and rows per second, with
/// arithmetic in brackets: interpreter 4.94 T (10.2) and direct code 8.3 T (21.4) at 10,000 x 10,860, compiled
/// kernels 9.6 T (22.0) at 256 x 1,000,000. For an expression of 30 nodes: 5.1 us of a core to write and load direct
/// code from graphs, that is 0.17 us per node, to which passes and encoding add up to 0.5 us per node (the page's table
/// of the CPU engine), rounded up; and 2.6 ms to compile, 87 us per node, rounded up.
inline constexpr DeviceCosts kTypicalCosts = {
    .interpret = 1 / 4.95e12, .direct = 1 / 8e12, .compiled = 1 / 9.5e12, .write = 1e-6, .compile = 100e-6};

/// The same of other modes, which have the programs of functions: an H200, commit 5081f84, losses, in nodes and rows
/// per second. In f32, mutated formulas, 2,000 x 1,000,000: interpreter, direct code and LLVM's code 3.40, 5.08
/// and 5.12 T. In f64, "mixed", 10,000 x 10,860: interpreter and direct code 0.321 and 0.424 T; LLVM's code was not
/// measured, and counts as direct code. Of other populations direct code took 1.1 times as long as the interpreter in
/// f32 (commit 4ad0d55: 23.2 and 20.9 ms), and 1.3 times in f64 (4.23 and 3.26 ms).
constexpr DeviceCosts typicalCosts(Precision precision, Math math) {
  DeviceCosts costs = kTypicalCosts;
  if (isApproximate(math, precision)) return costs;
  costs.interpret = isDouble(precision) ? 1 / 0.321e12 : 1 / 3.4e12;
  costs.direct = costs.compiled = isDouble(precision) ? 1 / 0.424e12 : 1 / 5.08e12;
  costs.direct_is_surely_quicker = false;
  return costs;
}

/// Nodes times rows of an evaluation whose time says something about the code. Less does not fill a large GPU: its time
/// is that of a launch and of the longest program.
inline constexpr double kLeastMeasured = 1e9;

/// Time from the expressions to loaded direct code, which all cores write together.
constexpr double writingSeconds(const DeviceCosts& costs, double nodes, std::size_t cores) {
  return costs.write * nodes / static_cast<double>(cores);
}

/// Time of one core per node from the expressions to the interpreter's programs: 200 ns on 16 threads, of small
/// expressions and of random trees alike (docs/history/measurements.md).
inline constexpr double kEncodeSecondsPerNode = 0.2e-6;

constexpr double encodingSeconds(double nodes, std::size_t cores) {
  return kEncodeSecondsPerNode * nodes / static_cast<double>(cores);
}

/// Time from the first graph to the last loaded kernel. Each kernel is made by one core; several are made at a time.
constexpr double compileSeconds(const DeviceCosts& costs, double nodes, std::size_t kernels, std::size_t cores) {
  const std::size_t rounds = ceilDivide(kernels, cores);
  return kernels == 0 ? 0 : static_cast<double>(rounds) * costs.compile * nodes / static_cast<double>(kernels);
}

/// Whether it pays to make code that takes `better` per node and row beside code that takes `serving`: it is ready
/// before the expected evaluations are over, and faster by a tenth or more, which measurements may be wrong by.
constexpr bool makingPays(double serving, double better, double evaluations, double node_rows, double making_seconds) {
  return evaluations * node_rows * serving > making_seconds && better < 0.9 * serving;
}

}  // namespace srjit
