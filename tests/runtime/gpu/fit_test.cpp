// Engine::fit() on a model of a GPU: the processor's fits, bit for bit.
#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "ir/text.h"
#include "tests/generators/graphs.h"
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

// The columns of a quadratic over years: the device gives the residuals and the derivatives of each row.
TEST(DeviceFit, RefinedOnesEqualTheProcessors) {
  for (const Precision precision : kPrecisions) {
    Workload w;
    w.columns.resize(2);
    for (int row = 0; row < 500; ++row) {
      w.columns[0].push_back(1990 + 0.06 * row);
      w.columns[1].push_back(0.1 + row % 7);
      w.target.push_back(std::sin(0.1 * row) + 0.002 * row);
      w.weights.push_back(1 + row % 3);
    }
    w.expressions = {infix("p0 + x0*(p1 + x0*p2)"), infix("p0*x1"), infix("p0 + x0*(p1 + x0*(p2 + x1*p3))")};
    w.parameters = {1, 1, 1, 1, 1, 1, 1, 1};
    const Fits expected = fitsOf(cpuEngine(precision), w, Tier::kInterpret);
    EXPECT_EQ(expected.statuses[0], FitStatus::kConverged);
    EXPECT_TRUE(std::isfinite(expected.standard_errors[2]));
    for (const char* device : {"cuda:0", "cuda:0,1"}) {
      FakeMachine machine({.devices = {FakeDevice{}, FakeDevice{}}, .lag = true});
      const Engine gpu = machine.engine({.device = device, .precision = precision, .math = Math::kStrict});
      const Fits fits = fitsOf(gpu, w, Tier::kInterpret);
      expectSameBits(fits.parameters, expected.parameters, 1, "parameters");
      expectSameBits(fits.standard_errors, expected.standard_errors, 1, "standard errors");
      expectSameBits(fits.losses.values, expected.losses.values, 1, "losses");
      EXPECT_EQ(fits.iterations, expected.iterations);
      EXPECT_EQ(fits.statuses, expected.statuses);
    }
  }
}

/// Of `count` expressions, one in ten has derivatives by 16 parameters, which are all kept for the sums.
Workload fewWithManySlots(std::size_t count) {
  Workload w = fitWorkload(Precision::kF32);
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

/// What `run` gives of a program whose code is made at once, and of a deferred one that nothing was evaluated of.
template <class Run>
void expectSameDeferred(FakeMachine& machine, const std::string& device, const Run& run) {
  const Workload w = fitWorkload(Precision::kF32);
  const Engine engine = machine.engine({.device = device, .math = Math::kStrict, .tier = Tier::kInterpret});
  const Dataset data = engine.upload(w.view()).value();
  const auto valuesOf = [&](bool deferred) {
    return run(engine, engine.compile(w.expressions, {.deferred = deferred}), data, w.parameters);
  };
  const std::vector<double> values = valuesOf(true);
  ASSERT_FALSE(values.empty());
  expectSameBits(values, valuesOf(false), 1, device.c_str());
}

TEST(DeferredProgram, FirstEvaluationsOfAnyKindAreTheSame) {
  for (const std::string& device : {std::string("cpu"), std::string("cuda:0"), std::string("cuda:0,1")}) {
    FakeMachine machine({.devices = {FakeDevice{}, FakeDevice{}}});
    const auto expectSame = [&](const auto& run) { expectSameDeferred(machine, device, run); };
    using Parameters = std::vector<double>;
    expectSame([](const Engine& e, const Program& p, const Dataset& d, const Parameters& x) {
      return e.loss(p, d, x).value().values;
    });
    expectSame([](const Engine& e, const Program& p, const Dataset& d, const Parameters& x) {
      return e.submitLoss(p, d, x).value().result().value().values;
    });
    expectSame([](const Engine& e, const Program& p, const Dataset& d, const Parameters& x) {
      Parameters twice = x;
      twice.insert(twice.end(), x.begin(), x.end());
      return e.loss(p, d, twice).value().values;
    });
    expectSame([](const Engine& e, const Program& p, const Dataset& d, const Parameters& x) {
      return e.gradient(p, d, x).value().derivatives;
    });
    expectSame([](const Engine& e, const Program& p, const Dataset& d, const Parameters& x) {
      EXPECT_TRUE(e.prepare(p, d, LossOptions()).ok());
      std::vector<float> out(p.size() * d.rows());
      EXPECT_TRUE(e.submitEvaluate(p, d, x, std::span(out)).value().result().ok());
      return Parameters(out.begin(), out.end());
    });
  }
}

TEST(DeferredProgram, HasAStatusFromItsFirstEvaluationOn) {
  const Workload w = fitWorkload(Precision::kF32);
  FakeMachine machine;
  const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kInterpret});
  const Dataset data = gpu.upload(w.view()).value();
  const Program program = gpu.compile(w.expressions, {.deferred = true});
  EXPECT_EQ(program.status().evaluations, 0U);
  gpu.loss(program, data, w.parameters).value();
  gpu.loss(program, data, w.parameters).value();
  EXPECT_EQ(program.status().evaluations, 2U);
  EXPECT_EQ(program.status().served.interpreted, w.expressions.size());
}

// An error of the call; a later one makes the code.
TEST(DeferredProgram, AFaultWhileCodeIsMadeIsAnErrorOfTheEvaluation) {
  const Workload w = fitWorkload(Precision::kF32);
  const std::vector<double> expected = [&] {
    const Engine cpu = cpuEngine(Precision::kF32);
    return cpu.loss(cpu.compile(w.expressions), cpu.upload(w.view()).value(), w.parameters).value().values;
  }();
  FakeMachine machine;
  const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kInterpret});
  const Dataset data = gpu.upload(w.view()).value();
  const Program program = gpu.compile(w.expressions, {.deferred = true});
  machine.driver.failAt("cuMemcpyHtoDAsync", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(gpu.loss(program, data, w.parameters).error().code, Errc::kMachine);
  EXPECT_TRUE(program.failures().empty());
  expectSameBits(gpu.loss(program, data, w.parameters).value().values, expected, 1, "afterwards");
}

}  // namespace
}  // namespace srjit
