// Engine::fit() on a model of a GPU: the processor's fits, bit for bit.
#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "ir/text.h"
#include "tests/generators/graphs.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

Fits fitsOf(const Engine& engine, const Workload& w, Tier tier) {
  const Dataset data = engine.upload(w.view()).value();
  return engine.fit(engine.compile(w.expressions, {.tier = tier}), data, w.parameters).value();
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
  const Workload w = fitWorkload(30, 200, Precision::kF32);
  const Fits expected = fitsOf(cpuEngine(Precision::kF32), w, Tier::kInterpret);
  for (const bool is_lost : {false, true}) {
    std::size_t errors = 0, parts = 0;
    for (std::size_t n = 1; n < 16; ++n) {
      FakeMachine machine;
      const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kInterpret});
      const auto [data, program] = prepared(gpu, w);
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

/// Of `count` expressions, one in ten has derivatives by 16 parameters, which are all kept for the sums.
Workload fewWithManySlots(std::size_t count) {
  Workload w = fitWorkload(30, 200, Precision::kF32);
  std::string many = "x0";
  for (int k = 0; k < 8; ++k) many += fmt::format(" + p{} / (x1 + p{})", 2 * k, 2 * k + 1);
  w.expressions.clear();
  w.parameters.clear();
  for (std::size_t e = 0; e < count; ++e) {
    w.expressions.push_back(infix(e % 10 == 9 ? many : fmt::format("p0 * x{} + {}", e % 2, e)));
    for (std::uint32_t p = 0; p < w.expressions.back().parameterCount(); ++p) {
      w.parameters.push_back(0.5 + 0.25 * static_cast<double>((e + p) % 7));
    }
  }
  return w;
}

// A launch of either is enough for few expressions.
TEST(DeviceFit, ProgramsOfManySlotsAreLaunchedApart) {
  for (const std::size_t count : {200U, 1'100U}) {
    const Workload w = fewWithManySlots(count);
    FakeMachine machine;
    const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kInterpret});
    const auto fitsOn = [&](const Engine& engine) {
      const Dataset data = engine.upload(w.view()).value();
      return engine.fit(engine.compile(w.expressions, {.deferred = true}), data, w.parameters, {.iterations = 1})
          .value();
    };
    const Fits fits = fitsOn(gpu), expected = fitsOn(cpuEngine(Precision::kF32));
    expectSameBits(fits.losses.values, expected.losses.values, 1, "losses");
    expectSameBits(fits.standard_errors, expected.standard_errors, 1, "standard errors");
    const std::vector<FakeCall> calls = machine.driver.calls();
    const auto launches = std::ranges::count_if(calls, [](const FakeCall& call) {
      return call.entry == "cuLaunchKernel" && call.detail.find("interpreter") != std::string::npos;
    });
    EXPECT_EQ(launches, count < 1'000 ? 1 : 2);
  }
}

TEST(DeferredProgram, HasAStatusFromItsFirstEvaluationOn) {
  const Workload w = fitWorkload(30, 200, Precision::kF32);
  FakeMachine machine;
  const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kInterpret});
  const auto [data, program] = prepared(gpu, w, {.deferred = true});
  EXPECT_EQ(program.status().evaluations, 0U);
  gpu.loss(program, data, w.parameters).value();
  gpu.loss(program, data, w.parameters).value();
  EXPECT_EQ(program.status().evaluations, 2U);
  EXPECT_EQ(program.status().served.interpreted, w.expressions.size());
}

// An error of the call; a later one makes the code.
TEST(DeferredProgram, AFaultWhileCodeIsMadeIsAnErrorOfTheEvaluation) {
  const Workload w = fitWorkload(30, 200, Precision::kF32);
  const std::vector<double> expected = [&] {
    const Engine cpu = cpuEngine(Precision::kF32);
    return cpu.loss(cpu.compile(w.expressions), cpu.upload(w.view()).value(), w.parameters).value().values;
  }();
  FakeMachine machine;
  const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kInterpret});
  const auto [data, program] = prepared(gpu, w, {.deferred = true});
  machine.driver.failAt("cuMemcpyHtoDAsync", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(gpu.loss(program, data, w.parameters).error().code, Errc::kMachine);
  EXPECT_TRUE(program.failures().empty());
  expectSameBits(gpu.loss(program, data, w.parameters).value().values, expected, 1, "afterwards");
}

}  // namespace
}  // namespace srjit
