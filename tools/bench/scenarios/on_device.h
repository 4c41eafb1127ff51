// Losses of generations that are in a GPU's memory already, as of a system that breeds there (runtime/device_loss.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/cuda/handles.h"
#include "runtime/device_loss.h"
#include "tools/bench/work.h"

namespace srjit {

/// Seconds of one call, whose arrays and losses stay on the device.
struct OnDeviceTimes {
  double submit = 0;   ///< until the call returns
  double wall = 0;     ///< until its losses are there
  double kernels = 0;  ///< by the device's clock
};

class OnDevice {
 public:
  /// Generations have at most `expressions` expressions of 64 tokens and the operators of random trees. `cuda` is the
  /// engine's device. Throws BenchFailure, CudaFailure, as all members do.
  OnDevice(const Engine& engine, const Dataset& data, std::shared_ptr<const Cuda> cuda, std::size_t expressions);

  /// The losses of a generation without parameters, evaluated twice; the second time counts.
  std::pair<OnDeviceTimes, std::vector<double>> run(std::span<const Expression> generation);

 private:
  std::shared_ptr<const Cuda> cuda_;
  CurrentContext current_;
  std::shared_ptr<const Stream> stream_;
  DeviceLoss loss_;
};

/// The expressions with numbers in the place of parameters, so that lanes have constants to fold.
std::vector<Expression> withoutParameters(std::span<const Expression> generation);

}  // namespace srjit
