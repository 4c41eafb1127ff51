// A device of a fake driver for tests, and helpers for its failures.
#pragma once

#include <optional>

#include <gtest/gtest.h>

#include "ir/ops.h"
#include "runtime/cuda/handles.h"
#include "tests/gpu_model/fake_driver.h"
#include "tests/gpu_model/fake_image_maker.h"

namespace srjit {

/// A device of a fake driver, whose context is current.
struct Device {
  explicit Device(FakeOptions options = {}) : fake(std::move(options)) {
    cuda = Cuda::open(fake.load().value(), 0).value();
    current.emplace(*cuda);
    stream = std::make_shared<const Stream>(cuda);
  }
  /// Kernel that computes x0 + p0, with one output.
  Module addition() const {
    Dag dag(Precision::kF32);
    dag.addRoot(dag.apply(Op::kAdd, {dag.variable(0), dag.parameter(0, 0)}));
    return Module(cuda, maker.rows(std::span(&dag, 1), {}).value());
  }

  FakeDriver fake;
  FakeImageMaker maker;
  std::shared_ptr<const Cuda> cuda;
  std::optional<CurrentContext> current;
  std::shared_ptr<const Stream> stream;
};

/// The exception of `call`.
template <class Call>
CudaFailure failureOf(const Call& call) {
  try {
    call();
  } catch (const CudaFailure& failure) {
    return failure;
  }
  ADD_FAILURE() << "nothing failed";
  return CudaFailure(CUDA_SUCCESS, {});
}

inline FakeOptions withDevices(std::vector<FakeDevice> devices) {
  FakeOptions options;
  options.devices = std::move(devices);
  return options;
}

}  // namespace srjit
