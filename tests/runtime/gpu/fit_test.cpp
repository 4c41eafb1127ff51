// Engine::fit() on a model of a GPU: the processor's fits, bit for bit.
#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "ir/text.h"
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

TEST(DeviceFit, OfOtherLossesEqualsTheProcessors) {
  const Workload w = withShares(fitWorkload(Precision::kF64));
  const EngineOptions options{.precision = Precision::kF64, .math = Math::kStrict};
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine(options), cpu = cpuEngine(Precision::kF64);
  for (const LossOptions& loss :
       {LossOptions{.kind = LossKind::kScaledR2}, LossOptions{.kind = LossKind::kHuber, .nan = NanPolicy::kSkip},
        LossOptions{.kind = LossKind::kMae, .nan = NanPolicy::kReject}, LossOptions{.kind = LossKind::kLogLoss},
        LossOptions{.custom = parse("abs(f - y)^1.5", Language::kInfix, {"f", "y", "w"}).value()}}) {
    const auto fitsOn = [&](const Engine& engine) {
      const Dataset data = engine.upload(w.view()).value();
      return engine.fit(engine.compile(w.expressions), data, w.parameters, {.loss = loss, .iterations = 12}).value();
    };
    const Fits fits = fitsOn(gpu), expected = fitsOn(cpu);
    expectSameBits(fits.parameters, expected.parameters, 1, "parameters");
    expectSameBits(fits.losses.values, expected.losses.values, 1, "losses");
    EXPECT_EQ(fits.statuses, expected.statuses);
  }
}

/// Compares fits in which something failed after the first pass with those without. Gives whether some failed.
bool hasFailuresOf(const Fits& fits, const Fits& expected) {
  for (std::size_t e = 0; e < fits.statuses.size(); ++e) {
    const auto failure = std::ranges::find(fits.losses.failures, e, &Failure::expression);
    const bool has_failed = failure != fits.losses.failures.end();
    EXPECT_EQ(has_failed, fits.statuses[e] == FitStatus::kFailed);
    if (has_failed) {
      EXPECT_EQ(failure->error.code, Errc::kMachine);
      EXPECT_LE(fits.iterations[e], expected.iterations[e]);
    } else {
      EXPECT_EQ(fits.statuses[e], expected.statuses[e]);
      EXPECT_EQ(fits.iterations[e], expected.iterations[e]);
    }
    EXPECT_TRUE(std::isfinite(fits.losses.values[e]) || !std::isfinite(expected.losses.values[e]));
  }
  return !fits.losses.failures.empty();
}

// What was fitted stays, with a status for each fit that went on. A fault of the first pass is an error.
TEST(DeviceFit, AFaultIsAStatusOfTheFitsThatGoOn) {
  const Workload w = fitWorkload(Precision::kF32);
  const Fits expected = fitsOf(cpuEngine(Precision::kF32), w, Tier::kInterpret);
  for (const bool is_lost : {false, true}) {
    std::size_t errors = 0, parts = 0;
    for (std::size_t n = 1; n < 16; ++n) {
      FakeMachine machine;
      const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kInterpret});
      const Dataset data = gpu.upload(w.view()).value();
      const Program program = gpu.compile(w.expressions);
      if (is_lost) {
        machine.driver.failKernel(n, CUDA_ERROR_ILLEGAL_ADDRESS);
      } else {
        machine.driver.failAt("cuMemcpyHtoDAsync", n, CUDA_ERROR_OUT_OF_MEMORY);
      }
      const Result<Fits> fits = gpu.fit(program, data, w.parameters);
      if (!fits) {
        EXPECT_EQ(fits.error().code, Errc::kMachine);
        ++errors;
      } else if (hasFailuresOf(*fits, expected)) {
        ++parts;
      }
      if (is_lost || (fits && fits->losses.failures.empty())) continue;
      expectSameBits(gpu.fit(program, data, w.parameters).value().parameters, expected.parameters, 1, "afterwards");
    }
    EXPECT_GT(errors, 0U);
    EXPECT_GT(parts, 2U);
  }
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
