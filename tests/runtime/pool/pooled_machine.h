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

}  // namespace srjit
