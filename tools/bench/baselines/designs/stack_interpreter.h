// The textbook interpreter on a GPU: a stack in local memory, one row per thread, a tree of comparisons per token.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/handles.h"
#include "tools/bench/baselines/designs/stack_program.h"

namespace srjit {

inline constexpr const char* kStackKernel = "stack_baseline";

/// The kernel (see ../ptx.h), with these parameters after the common ones: u64 cached (cached column c starts at
/// cached + 4 rows c), u64 tokens, u64 offsets (StackPrograms::offsets, from the program of ctaid.y = 0 on).
std::string stackInterpreterPtx();

/// The kernel, loaded. The context of `cuda` is current in all calls. Throws CudaFailure.
class StackInterpreter {
 public:
  explicit StackInterpreter(std::shared_ptr<const Cuda> cuda);

  /// Addresses on the device.
  struct Programs {
    CUdeviceptr tokens, offsets;
  };
  /// As for DeviceBaseline::launch().
  struct Data {
    CUdeviceptr columns, cached, parameters;
    std::uint32_t rows;
  };
  /// Launches programs first to first + count - 1, one per launch if `each`, else as many as possible; `out` is that of
  /// the first.
  void launch(const Stream& stream, const Data& data, const Programs& programs, std::size_t first, std::size_t count,
              bool each, CUdeviceptr target, CUdeviceptr out) const;

 private:
  Module module_;
  Kernel kernel_;
};

}  // namespace srjit
