// A model of a GPU on which keeping subtree values saves time.
#pragma once

#include <string>

#include <fmt/format.h>

#include "runtime/tiers/direct_self_test.h"
#include "tests/generators/scratch.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {

/// Writes facts to the cache in `directory`: computing takes so long that every read of a kept value saves time, and
/// the direct tier has passed its self-test.
inline void writeSlowFacts(FakeMachine& machine, const std::string& directory, Precision precision, Math math) {
  auto cuda = Cuda::open(machine.driver.load().value(), 0).value();
  const CurrentContext current(*cuda);
  const auto cache = KernelCache::open({.directory = directory});
  cache->writeFact(fmt::format("costs of {} ({}) {} {}", cuda->limits().name, cuda->limits().driver_version,
                               nameOf(precision), nameOf(math)),
                   R"({"interpret": 1e-7, "direct": 1e-7, "compiled": 1e-7})");
  auto store =
      std::make_shared<KernelStore>(std::make_shared<DeviceQueue>(cuda), machine.images, cache, precision, math);
  cache->writeFact(DirectSelfTest(store, 2).fact(), "proved");
}

/// A machine with these facts.
struct SlowMachine : FakeMachine {
  explicit SlowMachine(Precision p = Precision::kF32, Math m = Math::kStrict, FakeOptions fake = {.lag = true})
      : FakeMachine(std::move(fake)), precision(p), math(m) {
    writeSlowFacts(*this, directory.path(""), precision, math);
  }
  Engine keeping(std::uint64_t bytes = std::uint64_t{1} << 20) {
    return engine(
        {.precision = precision, .math = math, .cache_directory = directory.path(""), .subtree_bytes = bytes});
  }

  Precision precision;
  Math math;
  Scratch directory;
};

}  // namespace srjit
