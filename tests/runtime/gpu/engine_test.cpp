// What an engine on a model of a GPU copies and launches, expressions that fail there, its notices, and submissions.
// Its results are tests of tests/runtime/machines.

#include <gmock/gmock.h>

#include "tests/generators/workload.h"
#include "tests/gpu_model/direct_machine.h"
#include "tests/runtime/gpu/failing_memory.h"

namespace srjit {
namespace {

class DeviceEngine : public testing::TestWithParam<Precision> {
 protected:
  EngineOptions strict() const { return {.precision = GetParam(), .math = Math::kStrict}; }
};

TEST_P(DeviceEngine, StreamsColumnsThatAreLongerThanAPitch) {
  FakeMachine machine({.devices = {FakeDevice{.max_pitch = 4'000}}, .lag = true});
  EngineOptions options = strict();
  options.device_bytes = 200'000;
  const Engine gpu = machine.engine(options);
  const Engine cpu = cpuEngine(GetParam());
  const Workload w = arithmeticWorkload(5, 6, 2 * 4096 + 1777, GetParam(), true);
  expectSameLosses(lossesOf(gpu, w, Tier::kInterpret, {LossKind::kMse, NanPolicy::kSkip}),
                   lossesOf(cpu, w, Tier::kInterpret, {LossKind::kMse, NanPolicy::kSkip}), "streamed losses");
  expectSameBits(predict(gpu, w, Tier::kInterpret), predict(cpu, w, Tier::kInterpret), w.rows(), "predictions");
  EXPECT_EQ(machine.driver.count("cuMemcpy2DAsync"), 0U);
  EXPECT_GT(machine.driver.count("cuMemHostRegister"), 0U);
}

// Code and memory are there. One of the interpreted expressions fails, since the data lack its column.
TEST_P(DeviceEngine, NewParametersCostOneCopyAndNoCode) {
  DirectMachine machine({}, "proved", GetParam());
  const Engine gpu = machine.engine(machine.strict()), cpu = cpuEngine(GetParam());
  for (const Tier tier : {Tier::kInterpret, Tier::kDirect}) {
    Workload w = tier == Tier::kDirect ? directWorkload(6, 30, 500, false, GetParam())
                                       : arithmeticWorkload(6, 30, 500, GetParam());
    if (tier != Tier::kDirect) w.expressions.push_back(infix("x99"));
    const Dataset data = gpu.upload(w.view()).value();
    const Program program = gpu.compile(w.expressions, {.tier = tier});
    const auto expectCosts = [&](const char* what, const auto& evaluate) {
      evaluate();
      for (double& p : w.parameters) p = 2 * p + 1;
      machine.driver.forgetCalls();
      evaluate();
      EXPECT_EQ(machine.driver.count("cuMemcpyHtoDAsync"), 1U) << what;
      EXPECT_EQ(machine.driver.count("cuMemcpyDtoHAsync"), 1U) << what;
      EXPECT_EQ(machine.driver.count("cuLaunchKernel"), 2U) << what << ": the programs and their totals";
      for (const char* const entry : {"cuMemAllocFromPoolAsync", "cuMemHostAlloc", "cuModuleLoadDataEx"}) {
        EXPECT_EQ(machine.driver.count(entry), 0U) << what << " " << entry;
      }
    };
    expectCosts("losses", [&] {
      expectSameLosses(gpu.loss(program, data, w.parameters).value(), lossesOf(cpu, w, Tier::kInterpret, {}), "new");
    });
    if (tier == Tier::kDirect) {
      expectDirect(program, w.expressions.size());
      continue;
    }
    expectCosts("gradients", [&] {
      expectSameGradients(gpu.gradient(program, data, w.parameters).value(), gradientsOf(cpu, w, Tier::kInterpret, {}),
                          "new");
    });
    const std::vector<double> vectors(w.parameters.size() * 7, 0.5);
    expectCosts("several vectors", [&] { ASSERT_TRUE(gpu.loss(program, data, vectors).ok()); });
  }
}

TEST_P(DeviceEngine, CompiledKernelsAreOneGraph) {
  FakeMachine machine;
  const Engine gpu = machine.engine(strict());
  const Workload w = arithmeticWorkload(8, 100, 500, GetParam());
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kCompile});
  ASSERT_TRUE(gpu.prepare(program, data, LossOptions{}).ok());
  machine.driver.forgetCalls();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(gpu.loss(program, data, w.parameters).ok());
  EXPECT_EQ(machine.driver.count("cuGraphLaunch"), 3U);
  EXPECT_EQ(machine.driver.count("cuGraphInstantiateWithFlags"), 1U);
  EXPECT_EQ(machine.driver.count("cuLaunchKernel"), 3U) << "totals";
  EXPECT_EQ(program.status().compiled, 100U);
}

INSTANTIATE_TEST_SUITE_P(Precisions, DeviceEngine, testing::Values(Precision::kF32, Precision::kF64),
                         [](const auto& tested) { return std::string(nameOf(tested.param)); });

// No kernel writes sums of such an expression.
TEST(DeviceGradientOfAFailure, IsNaNAndDisturbsNoOther) {
  const auto run = [](const Dag& dag, const PassContext&) -> Dag {
    if (dag.variableCount() == 3) throw std::runtime_error("pass failure");
    return dag;
  };
  ASSERT_TRUE(registerPass({"throws-for-x2", run, Exactness::kExact, "a pass of a test"}).ok());
  const Pipeline pipeline = Pipeline::parse("standard,throws-for-x2,schedule", Math::kStrict).value();
  const Workload w{.expressions = infixes({"p0 * x0", "p0 * x2 + p1", "p0 * x1"}),
                   .columns = {{1, 2, 3, 4, 5}, {0.5, -1, 2, 0.25, 1}, {1, 1, 2, 2, 3}},
                   .target = {2, 1, 4, 3, 6},
                   .parameters = {1, 1, 1, 1}};
  FakeMachine machine({.devices = {FakeDevice{}, FakeDevice{}}, .lag = true});
  for (const char* const device : {"cuda:0", "cuda:all"}) {
    const Engine engine = machine.engine({.device = device, .math = Math::kStrict});
    const auto [data, program] = prepared(engine, w, {.tier = Tier::kInterpret, .pipeline = pipeline});
    for (const LossKind kind : {LossKind::kMse, LossKind::kHuber}) {
      for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip}) {
        const LossOptions loss{.kind = kind, .nan = nan};
        const Gradients got = engine.gradient(program, data, w.parameters, {.loss = loss}).value();
        for (const Losses& losses : {got.losses, engine.loss(program, data, w.parameters, loss).value()}) {
          ASSERT_EQ(losses.failures.size(), 1U);
          EXPECT_EQ(losses.failures[0].expression, 1U);
          EXPECT_EQ(losses.failures[0].error.message, "pass throws-for-x2: pass failure");
          EXPECT_TRUE(std::isnan(losses.values[1]));
          EXPECT_EQ(losses.valid_rows[1], 0U);
          EXPECT_TRUE(std::isfinite(losses.values[0]) && std::isfinite(losses.values[2]));
        }
        EXPECT_TRUE(std::isnan(got.derivatives[1]) && std::isnan(got.derivatives[2]));
        EXPECT_TRUE(std::isfinite(got.derivatives[0]) && std::isfinite(got.derivatives[3]));
      }
    }
    const Gradients none = engine.gradient(engine.compile(std::span<const Expression>()), data, {}).value();
    EXPECT_TRUE(none.losses.values.empty() && none.losses.failures.empty() && none.derivatives.empty());
  }
}

TEST(DeviceEngineNotices, AutoSaysWhyItDoesNotTakeTheGpu) {
  FakeMachine old({.devices = {FakeDevice{.capability = 60}}});
  const Engine engine = createEngine({.device = "auto"}, old.parts()).value();
  EXPECT_EQ(engine.options().device, "cpu");
  ASSERT_FALSE(engine.notices().empty());
  EXPECT_THAT(engine.notices()[0], testing::HasSubstr("compute capability 6.0"));
  EXPECT_THAT(engine.notices()[0], testing::EndsWith("; the processor computes instead"));

  EngineParts without = old.parts();
  without.driver = []() -> Result<std::shared_ptr<const Driver>> { return Error{Errc::kMachine, "no driver", {}}; };
  const Engine processor = createEngine({.device = "cpu"}, without).value();
  EXPECT_EQ(createEngine({.device = "auto"}, without).value().notices(), processor.notices()) << "no GPU was expected";
}

TEST(DeviceEngineNotices, AreEmptyOnAGpu) {
  FakeMachine machine;
  const Engine gpu = createEngine({.device = "auto", .cache_directory = ""}, machine.parts()).value();
  EXPECT_EQ(gpu.options().device, "cuda:0");
  EXPECT_TRUE(gpu.notices().empty());
}

TEST(DeviceAsync, ReturnsBeforeTheWorkIsDone) {
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Workload w = arithmeticWorkload(42, 30, 500, Precision::kF32);
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kInterpret});
  const Pending<Losses> pending = gpu.submitLoss(program, data, w.parameters).value();
  EXPECT_FALSE(pending.ready());
  pending.wait();
  EXPECT_TRUE(pending.ready());
}

// Work in flight outlives that failure, and is not disturbed.
TEST(DeviceAsync, OutOfMemoryForLossesFailsOneCall) {
  if (!kMemoryCanFail) GTEST_SKIP() << "allocations belong to the sanitizer";
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine({.math = Math::kStrict});
  constexpr std::size_t kExpressions = 1237;  // so that nothing else is as large
  const Workload w = arithmeticWorkload(44, kExpressions, 300, Precision::kF32);
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kInterpret});
  const Losses expected = gpu.loss(program, data, w.parameters).value();
  for (const int which : {1, 2}) {  // the values, and the counts of valid rows
    auto other = gpu.submitLoss(program, data, w.parameters).value();
    {
      const FailingMemory failing(kExpressions * sizeof(double), which);
      const auto losses = gpu.submitLoss(program, data, w.parameters);
      ASSERT_TRUE(failing.failed());
      ASSERT_FALSE(losses.ok());
      EXPECT_EQ(losses.error().code, Errc::kMachine);
      EXPECT_NE(losses.error().message.find("out of memory"), std::string::npos) << losses.error().message;
    }
    expectSameLosses(std::move(other).result().value(), expected, "in flight meanwhile");
    expectSameLosses(gpu.loss(program, data, w.parameters).value(), expected, "afterwards");
  }
}

}  // namespace
}  // namespace srjit
