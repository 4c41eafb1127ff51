// What an engine on a model of a GPU copies and launches, expressions that fail there, and its notices. Its results are
// tests of tests/runtime/machines.

#include <gmock/gmock.h>

#include "tests/generators/derivatives.h"
#include "tests/gpu_model/device_engine.h"

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

TEST_P(DeviceEngine, NewParametersCostOneCopyAndNoEncoding) {
  FakeMachine machine;
  const Engine gpu = machine.engine(strict());
  const Engine cpu = cpuEngine(GetParam());
  Workload w = arithmeticWorkload(6, 30, 500, GetParam());
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kInterpret});
  ASSERT_TRUE(gpu.loss(program, data, w.parameters).ok());
  for (double& p : w.parameters) p = 2 * p + 1;
  machine.driver.forgetCalls();
  const Losses losses = gpu.loss(program, data, w.parameters).value();
  expectSameLosses(losses, lossesOf(cpu, w, Tier::kInterpret, {}), "new parameters");
  EXPECT_EQ(machine.driver.count("cuMemcpyHtoDAsync"), 1U);
  EXPECT_EQ(machine.driver.count("cuMemcpyDtoHAsync"), 1U);
  EXPECT_EQ(machine.driver.count("cuLaunchKernel"), 2U) << "the programs and their totals";
  EXPECT_EQ(machine.driver.count("cuMemAllocFromPoolAsync"), 0U);
  EXPECT_EQ(machine.driver.count("cuMemHostAlloc"), 0U);
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

// One launch for all expressions and parameters, whose graphs were made before.
TEST_P(DeviceEngine, NewParametersOfGradientsCostOneCopyAndNoEncoding) {
  FakeMachine machine;
  const Engine gpu = machine.engine(strict());
  Workload w = arithmeticWorkload(6, 30, 500, GetParam());
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kInterpret});
  ASSERT_TRUE(gpu.gradient(program, data, w.parameters).ok());
  for (double& p : w.parameters) p = 2 * p + 1;
  machine.driver.forgetCalls();
  const Gradients got = gpu.gradient(program, data, w.parameters).value();
  expectSameGradients(got, gradientsOf(cpuEngine(GetParam()), w, Tier::kInterpret, {}), "new parameters");
  EXPECT_EQ(machine.driver.count("cuMemcpyHtoDAsync"), 1U);
  EXPECT_EQ(machine.driver.count("cuMemcpyDtoHAsync"), 1U);
  EXPECT_EQ(machine.driver.count("cuLaunchKernel"), 2U) << "the programs and their totals";
}
TEST_P(DeviceEngine, SeveralVectorsOfParametersAreOneLaunch) {
  FakeMachine machine;
  const Engine gpu = machine.engine(strict());
  const Workload w = arithmeticWorkload(81, 20, 300, GetParam());
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kInterpret});
  const std::vector<double> parameters(w.parameters.size() * 7, 0.5);
  ASSERT_TRUE(gpu.loss(program, data, parameters).ok());
  machine.driver.forgetCalls();
  ASSERT_TRUE(gpu.loss(program, data, parameters).ok());
  EXPECT_EQ(machine.driver.count("cuMemcpyHtoDAsync"), 1U);
  EXPECT_EQ(machine.driver.count("cuLaunchKernel"), 2U) << "the programs and their totals";
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
  Workload w;
  for (const char* const text : {"p0 * x0", "p0 * x2 + p1", "p0 * x1"}) {
    w.expressions.push_back(parse(text, Language::kInfix).value());
  }
  w.columns = {{1, 2, 3, 4, 5}, {0.5, -1, 2, 0.25, 1}, {1, 1, 2, 2, 3}};
  w.target = {2, 1, 4, 3, 6};
  w.parameters = {1, 1, 1, 1};
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

}  // namespace
}  // namespace srjit
