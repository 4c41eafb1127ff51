// A model of a machine with several GPUs.
#pragma once

#include <string>

#include <fmt/format.h>

#include "tests/generators/token_arrays.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {

/// So many GPUs, of two kinds.
inline FakeOptions manyDevices(std::size_t count, bool lag = true) {
  FakeOptions options{.devices = {}, .lag = lag};
  for (std::size_t i = 0; i < count; ++i) {
    FakeDevice device;
    if (i % 2 == 1) device = {.name = "Fake A100", .capability = 80, .multiprocessors = 3};
    options.devices.push_back(device);
  }
  return options;
}

/// "cuda:0,1,2".
inline std::string firstDevices(std::size_t count) {
  std::string list = "cuda:0";
  for (std::size_t i = 1; i < count; ++i) list += fmt::format(",{}", i);
  return list;
}

inline TokenArrays tokensOf(std::span<const Expression> expressions) {
  TokenArrays arrays;
  for (const Expression& expression : expressions) arrays.addPostfix(expression);
  return arrays;
}

inline void expectSameFits(const Fits& a, const Fits& b) {
  expectSameBits(a.parameters, b.parameters, 1, "parameters");
  expectSameBits(a.standard_errors, b.standard_errors, 1, "standard errors");
  expectSameLosses(a.losses, b.losses, "losses of fits");
  EXPECT_EQ(a.statuses, b.statuses);
  EXPECT_EQ(a.iterations, b.iterations);
  EXPECT_EQ(a.starts, b.starts);
}

/// The same failures, of the same expressions.
inline void expectSameReasons(std::span<const Failure> a, std::span<const Failure> b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].expression, b[i].expression);
    EXPECT_EQ(a[i].error.code, b[i].error.code);
    EXPECT_EQ(a[i].error.message, b[i].error.message);
  }
}

}  // namespace srjit
