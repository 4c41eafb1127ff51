// The textbook interpreter on a GPU: a stack in local memory, one row a thread, a tree of comparisons a token.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/handles.h"
#include "tools/bench/baselines/stack_program.h"

namespace srjit {

inline constexpr const char* kStackKernel = "stack_baseline";

/// The kernel, as baseline_ptx.h says, with these parameters after the common ones: u64 cached (cached column c from
/// cached + 4 rows c on), u64 tokens, u64 offsets (of the program of ctaid.y = 0, and the next ones).
std::string stackInterpreterPtx();

/// The kernel, loaded. The context of `cuda` is current in all calls. Throws CudaFailure.
class StackInterpreter {
 public:
  explicit StackInterpreter(std::shared_ptr<const Cuda> cuda);

  /// Addresses on the device.
  struct Programs {
    CUdeviceptr tokens, offsets;
  };
  /// As DeviceBaseline::launch has them.
  struct Data {
    CUdeviceptr columns, cached, parameters;
    std::uint32_t rows;
  };
  /// Programs first to first + count - 1, `each` of them in a launch of its own or as many as possible in one; `out` is
  /// that of the first.
  void launch(const Stream& stream, const Data& data, const Programs& programs, std::size_t first, std::size_t count,
              bool each, CUdeviceptr target, CUdeviceptr out) const;

 private:
  Module module_;
  Kernel kernel_;
};

}  // namespace srjit
