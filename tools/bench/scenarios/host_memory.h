// Host memory for results, and the speed of copies into it.
#pragma once

#include <span>
#include <vector>

#include "runtime/cuda/handles.h"
#include "tools/bench/gpu_context.h"

namespace srjit {

/// A matrix in memory that is pinned for the benchmark's GPU, or in pageable memory. Throws CudaFailure, BenchFailure.
class HostMatrix {
 public:
  HostMatrix(const BenchContext& context, std::size_t values, bool pinned);
  std::span<float> values() { return values_; }

 private:
  std::vector<float> pageable_;
  PinnedBuffer pinned_;
  std::span<float> values_;
};

/// Seconds of single copies of `bytes` bytes from the GPU into pinned memory, by the host's clock, on an otherwise idle
/// device. Throws CudaFailure, BenchFailure.
std::vector<double> pinnedCopySeconds(const BenchContext& context, std::size_t bytes);

}  // namespace srjit
