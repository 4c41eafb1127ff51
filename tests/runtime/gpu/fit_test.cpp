// Engine::fit() on a model of a GPU: the processor's fits, bit for bit.
#include <gmock/gmock.h>

#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

Workload fitWorkload(Precision precision) {
  const GeneratorOptions options{.seed = 23,
                                 .min_nodes = 3,
                                 .max_nodes = 20,
                                 .variables = 2,
                                 .parameters = 3,
                                 .ops = arithmeticOps(),
                                 .parameter_probability = 0.4};
  return Workload::random(options, 30, 200, Spread::kTame, precision);
}

Fits fitsOf(const Engine& engine, const Workload& w, Tier tier) {
  const Dataset data = engine.upload(w.view()).value();
  return engine.fit(engine.compile(w.expressions, {.tier = tier}), data, w.parameters).value();
}

TEST(DeviceFit, EqualsTheProcessors) {
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    FakeMachine machine({.lag = true});
    const Engine gpu = machine.engine({.precision = precision, .math = Math::kStrict});
    const Workload w = fitWorkload(precision);
    const Fits expected = fitsOf(cpuEngine(precision), w, Tier::kInterpret);
    for (const Tier tier : {Tier::kInterpret, Tier::kDirect}) {
      const Fits fits = fitsOf(gpu, w, tier);
      expectSameBits(fits.parameters, expected.parameters, 1, "parameters");
      expectSameBits(fits.losses.values, expected.losses.values, 1, "losses");
      EXPECT_EQ(fits.iterations, expected.iterations);
      EXPECT_EQ(fits.statuses, expected.statuses);
    }
  }
}

}  // namespace
}  // namespace srjit
