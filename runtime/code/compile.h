// Machine code by LLVM for the expressions of a program.
#pragma once

#include <atomic>
#include <cstddef>

#include "runtime/code/graphs.h"

namespace srjit {

/// Makes kernels of `kind` for the chosen expressions, of their `graphs` (planKernels(), addGraphs()), and encodes the
/// others for the interpreter. First the calling thread loads cached modules, one after another, while a task reads the
/// next; then the missing modules are compiled in parallel. A group is divided in halves if its kernel spills or is
/// refused; a single expression is then interpreted, or a failure. Stops early, with code for nothing, once
/// `cancelled`.
DeviceCode compileForDevice(const CodeRequest& request, const Graphs& graphs, const KernelKind& kind,
                            const std::atomic<bool>& cancelled);

/// Rows per thread of compiled kernels, as measured on an H200 (docs/history/experiments.md). More overlap more
/// instructions, but take twice the registers, twice the time to assemble, and more than the instruction cache holds.
inline constexpr unsigned kCompiledRowsPerThread = 4;

}  // namespace srjit
