// Machine code by LLVM for the expressions of a program.
#pragma once

#include <atomic>
#include <cstddef>

#include "runtime/code/graphs.h"

namespace srjit {

/// Makes kernels of `kind` for the chosen expressions, of their `graphs` (planKernels(), addGraphs()), and encodes the
/// others. First the calling thread reads and loads what the cache has, one module after another; then the rest is
/// compiled, in parallel.
/// A group whose kernel spills, or that is refused, is made again in halves; an expression that fails alone is
/// interpreted, or a failure. Stops early, with code for nothing, once `cancelled`.
DeviceCode compileForDevice(const CodeRequest& request, const Graphs& graphs, const KernelKind& kind,
                            const std::atomic<bool>& cancelled);

/// Rows per thread of compiled kernels, as measured on an H200 (docs/history/experiments.md). More overlap more
/// instructions, but take twice the registers, twice the time to assemble, and more than the instruction cache holds.
inline constexpr unsigned kCompiledRowsPerThread = 4;

}  // namespace srjit
