// submitLoss() and submitEvaluate(): several evaluations in flight, from several threads.
#include <atomic>
#include <thread>

#include "tests/gpu_model/device_engine.h"
#include "tests/runtime/gpu/failing_memory.h"

namespace srjit {
namespace {

TEST(DeviceAsync, ConcurrentEqualsSequential) {
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine({.math = Math::kStrict});
  Workload w = arithmeticWorkload(41, 30, 500, Precision::kF32);
  const Dataset data = gpu.upload(w.view()).value();
  const Program program = gpu.compile(w.expressions, {.tier = Tier::kInterpret});
  std::vector<Pending<Losses>> pending;
  std::vector<std::vector<double>> steps;
  for (int step = 0; step < 6; ++step) {
    for (double& p : w.parameters) p += 0.5;
    steps.push_back(w.parameters);
    pending.push_back(gpu.submitLoss(program, data, w.parameters).value());
  }
  for (std::size_t step = 6; step-- > 0;) {
    const Losses got = std::move(pending[step]).result().value();
    expectSameLosses(got, gpu.loss(program, data, steps[step]).value(), "in flight");
  }
}

TEST(DeviceAsync, ReturnsBeforeTheWorkIsDone) {
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Workload w = arithmeticWorkload(42, 30, 500, Precision::kF32);
  const Dataset data = gpu.upload(w.view()).value();
  const Program program = gpu.compile(w.expressions, {.tier = Tier::kInterpret});
  const Pending<Losses> pending = gpu.submitLoss(program, data, w.parameters).value();
  EXPECT_FALSE(pending.ready());
  pending.wait();
  EXPECT_TRUE(pending.ready());
}

TEST(DeviceAsync, DestructorWaits) {
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Workload w = arithmeticWorkload(43, 30, 500, Precision::kF32);
  std::optional<Dataset> data = gpu.upload(w.view()).value();
  std::optional<Program> program = gpu.compile(w.expressions, {.tier = Tier::kInterpret});
  std::vector<float> out(w.expressions.size() * w.rows());
  {
    const auto losses = gpu.submitLoss(*program, *data, w.parameters).value();
    const auto predictions = gpu.submitEvaluate(*program, *data, w.parameters, std::span<float>(out)).value();
    data.reset();
    program.reset();
  }
  expectSameBits(std::vector<double>(out.begin(), out.end()), predict(cpuEngine(Precision::kF32), w, Tier::kInterpret),
                 w.rows(), "predictions that were not taken");
}

// Work in flight outlives that failure, and is not disturbed.
TEST(DeviceAsync, OutOfMemoryForLossesFailsOneCall) {
  if (!kMemoryCanFail) GTEST_SKIP() << "allocations belong to the sanitizer";
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine({.math = Math::kStrict});
  constexpr std::size_t kExpressions = 1237;  // so that nothing else is as large
  const Workload w = arithmeticWorkload(44, kExpressions, 300, Precision::kF32);
  const Dataset data = gpu.upload(w.view()).value();
  const Program program = gpu.compile(w.expressions, {.tier = Tier::kInterpret});
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

TEST(DeviceAsync, ManyThreadsShareAnEngine) {
  FakeMachine machine;
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Engine cpu = cpuEngine(Precision::kF32);
  constexpr std::size_t kThreads = 6;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const Workload w = arithmeticWorkload(50 + t, 20, 200 + t, Precision::kF32);
      const Losses expected = lossesOf(cpu, w, Tier::kInterpret, {});
      const std::vector<double> predictions = predict(cpu, w, Tier::kInterpret);
      const Dataset data = gpu.upload(w.view()).value();
      for (int round = 0; round < 4; ++round) {
        const Tier tier = round % 2 == 0 ? Tier::kAuto : Tier::kCompile;
        const Program program = gpu.compile(w.expressions, {.tier = tier, .expected_evaluations = 1e9});
        auto first = gpu.submitLoss(program, data, w.parameters);
        ASSERT_TRUE(first.ok()) << first.error().message;
        expectSameBits(predict(gpu, program, data, w.parameters), predictions, w.rows(), "threads");
        expectSameLosses(std::move(*first).result().value(), expected, "threads");
        (void)program.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(DeviceAsync, TheHostEngineSubmitsToo) {
  const Engine cpu = cpuEngine(Precision::kF32);
  const Workload w = arithmeticWorkload(44, 30, 500, Precision::kF32);
  const Dataset data = cpu.upload(w.view()).value();
  const Program program = cpu.compile(w.expressions, {.tier = Tier::kInterpret});
  std::vector<float> out(w.expressions.size() * w.rows());
  auto losses = cpu.submitLoss(program, data, w.parameters).value();
  auto predictions = cpu.submitEvaluate(program, data, w.parameters, std::span<float>(out)).value();
  EXPECT_TRUE(std::move(predictions).result().value().empty());
  expectSameLosses(std::move(losses).result().value(), cpu.loss(program, data, w.parameters).value(), "host");
  expectSameBits(std::vector<double>(out.begin(), out.end()), predict(cpu, program, data, w.parameters), w.rows(),
                 "host");
}

}  // namespace
}  // namespace srjit
