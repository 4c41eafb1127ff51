// Losses of a population in one call: the device works while its parts are prepared. What they give,
// tests/runtime/machines tests.
#include <algorithm>

#include "tests/generators/token_arrays.h"
#include "tests/gpu_model/device_engine.h"
#include "tests/runtime/gpu/failing_memory.h"

namespace srjit {
namespace {

TEST(PopulationLosses, PartsHaveDirectCodeOfTheirOwn) {
  const Workload w = arithmeticWorkload(61, 120, 150, Precision::kF32);
  const TokenArrays arrays = tokensOf(w.expressions);
  FakeMachine machine({.lag = true});
  machine.population_parts = 3;
  const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kDirect});
  const Dataset data = gpu.upload(w.view()).value();
  const Program whole = gpu.compile(arrays.view()).value();
  const Losses expected = gpu.loss(whole, data, w.parameters).value();
  ASSERT_GT(whole.status().served.direct, 100U);
  machine.driver.forgetCalls();
  expectSameLosses(gpu.loss(arrays.view(), data, w.parameters).value(), expected, "direct code");
  EXPECT_EQ(machine.driver.count("cuModuleLoadDataEx"), 3U);
}

TEST(PopulationLosses, TheDeviceComputesWhileTheRestIsPrepared) {
  const Workload w = arithmeticWorkload(63, 90, 100, Precision::kF32);
  const TokenArrays arrays = tokensOf(w.expressions);
  for (const std::size_t parts : {1, 3}) {
    FakeMachine machine({.lag = true});
    machine.population_parts = parts;
    const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kInterpret});
    const Dataset data = gpu.upload(w.view()).value();
    const auto isCopy = [](const FakeCall& call) { return call.entry == "cuMemcpyHtoDAsync"; };
    const std::vector<FakeCall> before = machine.driver.calls();
    const std::uint64_t uploads = std::ranges::find_if(before, isCopy)->stream;
    machine.driver.forgetCalls();
    Pending<Losses> pending = gpu.submitLoss(arrays.view(), data, w.parameters).value();
    EXPECT_FALSE(pending.ready());
    const std::vector<FakeCall> calls = machine.driver.calls();
    const auto kernel = std::ranges::find(calls, std::string_view("cuLaunchKernel"), &FakeCall::entry);
    const bool overlaps =
        std::any_of(kernel, calls.end(), [&](const FakeCall& call) { return isCopy(call) && call.stream == uploads; });
    EXPECT_EQ(overlaps, parts == 3);
    pending.wait();
    EXPECT_TRUE(pending.ready());
    EXPECT_EQ(std::move(pending).result().value().values.size(), w.expressions.size());
  }
}

TEST(PopulationLosses, ALostDeviceIsAnErrorOfTheCall) {
  const Workload w = arithmeticWorkload(66, 60, 100, Precision::kF32);
  const TokenArrays arrays = tokensOf(w.expressions);
  for (const std::size_t kernel : {1, 3, 6}) {  // two of each part
    for (const bool lag : {false, true}) {
      FakeMachine machine({.lag = lag});
      machine.population_parts = 3;
      const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kInterpret});
      const Dataset data = gpu.upload(w.view()).value();
      machine.driver.failKernel(kernel, CUDA_ERROR_ILLEGAL_ADDRESS);
      const Result<Losses> losses = gpu.loss(arrays.view(), data, w.parameters);
      ASSERT_FALSE(losses.ok());
      EXPECT_EQ(losses.error().code, Errc::kMachine);
      EXPECT_NE(losses.error().message.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos);
    }
  }
}

TEST(PopulationLosses, NoMemoryForTheResultFailsOneCall) {
  if (!kMemoryCanFail) GTEST_SKIP() << "allocations belong to the sanitizer";
  constexpr std::size_t kExpressions = 1237;  // so that nothing else is as large
  FakeMachine machine({.lag = true});
  machine.population_parts = 3;
  const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kInterpret});
  const Workload w = arithmeticWorkload(67, kExpressions, 100, Precision::kF32);
  const TokenArrays arrays = tokensOf(w.expressions);
  const Dataset data = gpu.upload(w.view()).value();
  const Losses expected = gpu.loss(arrays.view(), data, w.parameters).value();
  auto pending = gpu.submitLoss(arrays.view(), data, w.parameters).value();
  {
    const FailingMemory failing(kExpressions * sizeof(double), 1);
    const Result<Losses> losses = std::move(pending).result();
    ASSERT_TRUE(failing.failed());
    ASSERT_FALSE(losses.ok());
    EXPECT_EQ(losses.error().code, Errc::kMachine);
  }
  expectSameLosses(gpu.loss(arrays.view(), data, w.parameters).value(), expected, "afterwards");
}

TEST(PopulationLosses, WithKeptSubtreesAPopulationIsOneGeneration) {
  const Workload w = arithmeticWorkload(68, 150, 300, Precision::kF32);
  const TokenArrays arrays = tokensOf(w.expressions);
  const Losses expected = lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {});
  for (const std::size_t parts : {0, 3}) {
    FakeMachine machine;
    machine.population_parts = parts;
    const Engine gpu = machine.engine({.math = Math::kStrict, .subtree_bytes = std::uint64_t{1} << 20});
    const Dataset data = gpu.upload(w.view()).value();
    for (int generation = 0; generation < 4; ++generation) {
      expectSameLosses(gpu.loss(arrays.view(), data, w.parameters).value(), expected, "kept subtrees");
    }
  }
}

TEST(PopulationLosses, ThePartsAreOneGenerationOfRecurringIndividuals) {
  GeneratorOptions options{.seed = 69, .min_nodes = 20, .max_nodes = 60, .variables = 5, .ops = arithmeticOps()};
  const Workload w = Workload::random(options, 900, 50, Spread::kTame, Precision::kF32);
  const TokenArrays arrays = tokensOf(w.expressions);
  FakeMachine machine;
  machine.population_parts = 4;
  const Engine gpu = machine.engine({.math = Math::kStrict, .tier = Tier::kInterpret});
  const Dataset data = gpu.upload(w.view()).value();
  const Losses first = gpu.loss(arrays.view(), data, w.parameters).value();
  const Program second = gpu.compile(arrays.view()).value();
  EXPECT_EQ(second.info().recurring, w.expressions.size());
  expectSameLosses(gpu.loss(second, data, w.parameters).value(), first, "copies");
  expectSameLosses(gpu.loss(arrays.view(), data, w.parameters).value(), first, "copies in parts");
}

}  // namespace
}  // namespace srjit
