// Programs as machine code of our own: the direct tier (compiler/direct/emitter.h) on a device.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "compiler/direct/emitter.h"
#include "runtime/code/graphs.h"
#include "runtime/gpu/data.h"

namespace srjit {

/// Whether code can be written for a device at all; where it cannot, directForDevice() has everything interpreted.
bool hasDirectTier(const DeviceLimits& limits) noexcept;

/// How the code of a program is written (DirectOptions).
struct DirectShape {
  unsigned roots;   ///< of a group
  unsigned window;  ///< of the scheduler
  bool subroutines = false;
};
/// For these numbers of expressions and rows. Few blocks get small groups, so that every multiprocessor has some, in an
/// order that hides latencies, which too few warps do not hide. Many blocks get the order of the source, with
/// subroutines, which is written sooner.
DirectShape directShape(std::size_t expressions, std::size_t rows, unsigned multiprocessors) noexcept;

/// Writes machine code for all expressions that the tier covers, of their directGraphs(), in parallel on the calling
/// thread's arena; the others are encoded for the interpreter, or failures. Stops early, with code for nothing, once
/// `cancelled`. Throws as encodeForDevice().
DeviceCode directForDevice(KernelStore& store, const CompileOrder& order, const Graphs& graphs, const KernelKind& kind,
                           const DirectShape& shape, const std::atomic<bool>& cancelled);

/// Why the kernel cannot read columns of these strides, which it has 32 bits for, in bytes; nothing if it can.
std::optional<Error> directRefusal(const DeviceRows& rows, Precision precision);

/// The grid for code of this number of groups, registers per thread, and subroutines if it has some: enough blocks for
/// all multiprocessors to be busy to the end, and equal numbers of row groups for all warps.
DirectGrid directGrid(std::size_t rows, std::size_t groups, unsigned registers, bool has_subroutines,
                      unsigned multiprocessors) noexcept;

}  // namespace srjit
