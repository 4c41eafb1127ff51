// The engine on a model of a GPU gives the numbers of the CPU engine: strict arithmetic, bit for bit, in every tier,
// chunk and batch.

#include <gmock/gmock.h>

#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

class DeviceEngine : public testing::TestWithParam<Precision> {
 protected:
  EngineOptions strict() const { return {.precision = GetParam(), .math = Math::kStrict}; }
};

TEST_P(DeviceEngine, PredictsAsTheCpuDoes) {
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine(strict());
  const Engine cpu = cpuEngine(GetParam());
  for (const std::size_t rows : {1, 3, 127, 128, 129, 362, 1300}) {
    const Workload w = arithmeticWorkload(rows, 40, rows, GetParam());
    const std::vector<double> expected = predict(cpu, w, Tier::kInterpret);
    expectSameBits(predict(gpu, w, Tier::kInterpret), expected, rows, "interpreter");
    expectSameBits(predict(gpu, w, Tier::kCompile), expected, rows, "compiled");
  }
}

TEST_P(DeviceEngine, SumsLossesAsTheCpuDoes) {
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine(strict());
  const Engine cpu = cpuEngine(GetParam());
  for (const std::size_t rows : {1, 127, 129, 362, 4200}) {
    for (const bool weighted : {false, true}) {
      const Workload w = withShares(arithmeticWorkload(rows, rows > 1000 ? 6 : 25, rows, GetParam(), weighted));
      for (const LossInfo& info : allLosses()) {
        const LossKind kind = info.kind;
        for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip, NanPolicy::kReject}) {
          const LossOptions options{kind, nan};
          const Losses expected = lossesOf(cpu, w, Tier::kInterpret, options);
          expectSameLosses(lossesOf(gpu, w, Tier::kInterpret, options), expected, "interpreter");
          expectSameLosses(lossesOf(gpu, w, Tier::kCompile, options), expected, "compiled");
        }
      }
    }
  }
}

TEST_P(DeviceEngine, StreamsDataAboveTheMemoryLimit) {
  FakeMachine machine({.lag = true});
  EngineOptions options = strict();
  options.device_bytes = 300'000;  // less than the data take, so that they come in chunks of 4096 rows
  const Engine gpu = machine.engine(options);
  const Engine cpu = cpuEngine(GetParam());
  const std::size_t rows = 3 * 4096 + 1777;
  const Workload w = arithmeticWorkload(5, 6, rows, GetParam(), true);
  for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
    expectSameLosses(lossesOf(gpu, w, tier, {LossKind::kMse, NanPolicy::kSkip}),
                     lossesOf(cpu, w, Tier::kInterpret, {LossKind::kMse, NanPolicy::kSkip}), "streamed losses");
    expectSameBits(predict(gpu, w, tier), predict(cpu, w, Tier::kInterpret), rows, "streamed predictions");
  }
  EXPECT_GT(machine.driver.count("cuMemcpy2DAsync"), 8U);
  EXPECT_GT(machine.driver.count("cuMemHostRegister"), 0U);
}

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
  const Dataset data = gpu.upload(w.view()).value();
  const Program program = gpu.compile(w.expressions, {.tier = Tier::kInterpret});
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
  const Dataset data = gpu.upload(w.view()).value();
  const Program program = gpu.compile(w.expressions, {.tier = Tier::kCompile});
  ASSERT_TRUE(gpu.prepare(program, data, LossOptions{}).ok());
  machine.driver.forgetCalls();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(gpu.loss(program, data, w.parameters).ok());
  EXPECT_EQ(machine.driver.count("cuGraphLaunch"), 3U);
  EXPECT_EQ(machine.driver.count("cuGraphInstantiateWithFlags"), 1U);
  EXPECT_EQ(machine.driver.count("cuLaunchKernel"), 3U) << "totals";
  EXPECT_EQ(program.status().compiled, 100U);
}

TEST_P(DeviceEngine, ReadsAdoptedColumnsInPlace) {
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine(strict());
  const Engine cpu = cpuEngine(GetParam());
  const std::size_t rows = 300, columns = 5;
  const Workload w = arithmeticWorkload(9, 30, rows, GetParam());
  const auto element = static_cast<std::size_t>(bytesOf(GetParam()));
  const auto bytesOfValues = [&](const auto& at, std::size_t count) {
    std::vector<std::byte> bytes(count * element);
    for (std::size_t i = 0; i < count; ++i) {
      const double value = at(i);
      if (element == 8) {
        std::memcpy(&bytes[i * 8], &value, 8);
      } else {
        const auto narrow = static_cast<float>(value);
        std::memcpy(&bytes[i * 4], &narrow, 4);
      }
    }
    return bytes;
  };
  const auto e = static_cast<std::ptrdiff_t>(element);
  const CUdeviceptr by_column = machine.driver.allocateForeign(
      bytesOfValues([&](std::size_t i) { return w.columns[i / rows][i % rows]; }, rows * columns));
  const CUdeviceptr by_row = machine.driver.allocateForeign(
      bytesOfValues([&](std::size_t i) { return w.columns[i % columns][i / columns]; }, rows * columns));
  const CUdeviceptr target =
      machine.driver.allocateForeign(bytesOfValues([&](std::size_t i) { return w.target[i / 2]; }, 2 * rows));
  const DeviceMatrix target_view{target, rows, 1, 2 * e, 0, GetParam()};
  const Losses expected = lossesOf(cpu, w, Tier::kInterpret, {});
  const std::vector<double> predictions = predict(cpu, w, Tier::kInterpret);
  const DeviceMatrix layouts[] = {
      {by_column, rows, columns, e, e * static_cast<std::ptrdiff_t>(rows), GetParam()},
      {by_row, rows, columns, e * static_cast<std::ptrdiff_t>(columns), e, GetParam()},
  };
  for (const DeviceMatrix& layout : layouts) {
    const std::size_t before = machine.driver.usedBytes();
    const Dataset data = gpu.adopt({.columns = layout, .target = target_view}).value();
    EXPECT_LT(machine.driver.usedBytes() - before, 3 * rows * element) << "columns are not copied";
    for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
      const Program program = gpu.compile(w.expressions, {.tier = tier});
      expectSameLosses(gpu.loss(program, data, w.parameters).value(), expected, "adopted columns");
      expectSameBits(predict(gpu, program, data, w.parameters), predictions, rows, "adopted columns");
    }
  }
  for (const CUdeviceptr address : {by_column, by_row, target}) machine.driver.freeForeign(address);
}

TEST_P(DeviceEngine, ManyColumnsAreStagedInSections) {
  FakeMachine machine;
  const Engine gpu = machine.engine(strict());
  const Engine cpu = cpuEngine(GetParam());
  const GeneratorOptions options{
      .seed = 3, .min_nodes = 1, .max_nodes = 30, .variables = 400, .ops = arithmeticOps(), .constant_probability = 0};
  const Workload w = Workload::random(options, 60, 200, Spread::kTame, GetParam());
  expectSameBits(predict(gpu, w, Tier::kInterpret), predict(cpu, w, Tier::kInterpret), 200, "sections");
}

TEST_P(DeviceEngine, MissingVariablesAreFailures) {
  FakeMachine machine;
  const Engine gpu = machine.engine(strict());
  const Engine cpu = cpuEngine(GetParam());
  Workload w = arithmeticWorkload(12, 20, 100, GetParam());
  w.columns.resize(3);
  for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
    const Losses got = lossesOf(gpu, w, tier, {}), expected = lossesOf(cpu, w, Tier::kInterpret, {});
    expectSameLosses(got, expected, "data of three columns");
    ASSERT_FALSE(got.failures.empty());
    EXPECT_EQ(got.failures[0].error.message, expected.failures[0].error.message);
  }
}

TEST_P(DeviceEngine, AcceptsAnEmptyBatch) {
  FakeMachine machine;
  const Engine gpu = machine.engine(strict());
  const Workload w = arithmeticWorkload(12, 0, 100, GetParam());
  for (const Tier tier : {Tier::kInterpret, Tier::kCompile, Tier::kAuto}) {
    EXPECT_TRUE(lossesOf(gpu, w, tier, {}).values.empty());
    EXPECT_TRUE(predict(gpu, w, tier).empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, DeviceEngine, testing::Values(Precision::kF32, Precision::kF64),
                         [](const auto& tested) { return std::string(nameOf(tested.param)); });

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
