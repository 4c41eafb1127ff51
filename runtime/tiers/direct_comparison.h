// Compares direct code with the interpreter's and the CPU's, on probes that use every operator of the tier.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "ir/error.h"
#include "runtime/code/kernel_store.h"
#include "runtime/gpu/queue.h"

namespace srjit {

/// Compares direct code with the interpreter's and the CPU's on probes, bit for bit, any NaN being equal to any
/// other; the first difference as text, or nothing.
///
/// - Predictions are compared with the interpreter's: every operator that the tier has, on all pairs of special
///   numbers, then trees of all of them, on numbers of all magnitudes. Once with rows cut into parts, once
///   strided and in one part, so that warps go from one row group to the next.
/// - Losses of all shapes (LossSpec) are compared with the CPU's, which needs no assembler: of sums of two columns,
///   whose predictions are exact in every mode; likewise in parts and in one.
///
/// `begin` is called before direct code is loaded, after all else was made ready. Errors: of making the interpreter,
/// for lack of memory, and kCancelled. Throws CudaFailure, OutOfMemory, std::bad_alloc. Needs a current context; in
/// parallel on the calling thread's arena.
Result<std::string> compareDirectCode(const std::shared_ptr<DeviceQueue>& queue,
                                      const std::shared_ptr<KernelStore>& store, unsigned threads,
                                      const std::function<void()>& begin, const std::atomic<bool>& cancelled);

}  // namespace srjit
