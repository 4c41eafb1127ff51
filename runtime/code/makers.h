// Makes graphs, and code of them: for the interpreter, by the direct tier, and by LLVM.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compiler/direct/emitter.h"
#include "passes/dag.h"
#include "runtime/code/parts.h"
#include "runtime/evaluation/ranges.h"
#include "runtime/gpu/data.h"

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
/// Runs the passes for these ranges. A range that passes refuse is divided; an expression that they refuse by itself is
/// a failure. Stops early, with any part of the ranges, once `cancelled`.
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

/// Whether code can be written for a device at all; where it cannot, directForDevice() has everything interpreted.
bool hasDirectTier(const DeviceLimits& limits) noexcept;

/// How the code of this number of expressions is written for this number of rows: the roots of a group, the window of
/// the scheduler, and whether there are subroutines. Few blocks get small groups, so that every multiprocessor has
/// some, in an order that hides latencies, which too few warps do not hide. Many blocks get the order of the source,
/// with subroutines, which is written sooner.
DirectOptions directShape(std::size_t expressions, std::size_t rows, unsigned multiprocessors) noexcept;

/// Writes machine code for all expressions that the tier covers, of their directGraphs(), in parallel on the calling
/// thread's arena; the others are encoded for the interpreter, or failures. Stops early, with code for nothing, once
/// `cancelled`. `shape` is a directShape(). Throws as encodeForDevice().
DeviceCode directForDevice(KernelStore& store, const CompileOrder& order, const Graphs& graphs, const KernelKind& kind,
                           const DirectOptions& shape, const std::atomic<bool>& cancelled);

/// Why the kernel cannot read columns of these strides, which it has 32 bits for, in bytes; nothing if it can.
std::optional<Error> directRefusal(const DeviceRows& rows, Precision precision);

/// The grid for code of this number of groups, registers per thread, and subroutines if it has some: enough blocks for
/// all multiprocessors to be busy to the end, and equal numbers of row groups for all warps.
DirectGrid directGrid(std::size_t rows, std::size_t groups, unsigned registers, bool has_subroutines,
                      unsigned multiprocessors) noexcept;

/// Encodes the expressions of the order, in parallel on the calling thread's arena. Those that the interpreter cannot
/// run (too many slots or columns) are failures with kUnsupported; those that passes refuse, with kInvalid. Throws
/// CudaFailure, OutOfMemory, std::bad_alloc.
DeviceCode encodeForDevice(KernelStore& store, const CompileOrder& order);

/// Whether encodeForDevice() failed for want of room in the interpreter, which machine code may have.
inline bool isRefusal(const Failure& failure) { return failure.error.code == Errc::kUnsupported; }

/// Columns that all programs of an interpreter's launch may have between them; where there are more, launches have
/// neighbours that share columns.
std::size_t stagedColumnLimit(const DeviceLimits& limits, Precision precision);

}  // namespace srjit
