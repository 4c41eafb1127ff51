// The graphs of a program's expressions after the passes: what machine code is made of, for every kind of kernel.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "passes/dag.h"
#include "runtime/code/parts.h"
#include "runtime/evaluation/ranges.h"

namespace srjit {

/// Ranges of expressions, with a graph of each. Immutable once it has graphs.
struct Graphs {
  std::vector<Range> ranges;
  std::vector<Dag> dags;                ///< one a range, or none before the passes ran
  std::vector<std::uint32_t> too_long;  ///< expressions that LLVM is not given
  std::size_t per_module = 1;           ///< of LLVM's modules: ranges
  std::vector<Failure> failures;        ///< of passes, in order of expression
  std::size_t nodes = 0;                ///< of all graphs
  double seconds = 0;                   ///< that the passes took
};

// The functions below work in parallel on the calling thread's arena.

/// For direct code: ranges of adjacent expressions, in order, of all. An expression that passes refuse is a failure.
Graphs directGraphs(const CompileOrder& order);

/// For LLVM: ranges of expressions that share much, without graphs.
Graphs planKernels(const CompileOrder& order);
/// Runs the passes for these ranges. A range that passes refuse is divided; an expression that they refuse alone is a
/// failure. Stops early, with any part of the ranges, once `cancelled`.
void addGraphs(Graphs& graphs, const CompileOrder& order, const std::atomic<bool>& cancelled);
/// The two halves of a range of two expressions or more.
std::vector<Range> halvesOf(const Range& range);

/// Makes kernels of `kind` for the expressions of the order, of their `graphs` (planKernels(), addGraphs()), and
/// encodes the others for the interpreter. First the calling thread loads cached modules, one after another, while a
/// task reads the next; then the missing modules are compiled in parallel. A range is divided in halves if its kernel
/// spills or is refused; a single expression is then interpreted, or a failure. Stops early, with code for nothing,
/// once `cancelled`.
DeviceCode compileForDevice(KernelStore& store, const CompileOrder& order, const Graphs& graphs, const KernelKind& kind,
                            const std::atomic<bool>& cancelled);

/// Rows per thread of compiled kernels, as measured on an H200 (docs/history/experiments.md). More overlap more
/// instructions, but take twice the registers, twice the time to assemble, and more than the instruction cache holds.
inline constexpr unsigned kCompiledRowsPerThread = 4;

}  // namespace srjit
