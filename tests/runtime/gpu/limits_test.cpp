// Limits of the engine (EngineOptions::limits) on models of GPUs.
#include <chrono>
#include <thread>

#include <gmock/gmock.h>

#include "tests/generators/long_expressions.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

using testing::HasSubstr;

/// The machine and the names of its devices.
struct LimitedMachine {
  const char* device;
  std::size_t devices;
};

class DeviceLimitsOfCalls : public testing::TestWithParam<LimitedMachine> {
 protected:
  FakeMachine machine_{FakeOptions{.devices = std::vector<FakeDevice>(GetParam().devices)}};
  const Engine engine_ = machine_.engine({.device = GetParam().device, .math = Math::kStrict});
};

TEST_P(DeviceLimitsOfCalls, EndBetweenTwoKernels) {
  machine_.images->before = [](const FakeImageMaker::Request& request) {
    if (request.kind == "rows") std::this_thread::sleep_for(std::chrono::seconds(1));
    return okStatus();
  };
  const Workload w = arithmeticWorkload(4, 400, 130, Precision::kF32);
  const auto [data, program] = prepared(engine_, w, {.tier = Tier::kCompile});
  const Engine hasty = engine_.withLimits({.max_seconds = 0.5}).value();
  expectLate(hasty.loss(program, data, w.parameters), "0.5 s", "making kernels");
  const std::size_t made = machine_.images->count("rows");
  EXPECT_GT(made, 0U);
  machine_.images->before = nullptr;
  const Losses losses = engine_.loss(program, data, w.parameters).value();
  // What was made is kept, so without an end before the last kernel nothing is left to be made.
  EXPECT_GT(machine_.images->count("rows"), made);
  expectSameLosses(losses, lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {}), "kernels are made later");
}

INSTANTIATE_TEST_SUITE_P(Machines, DeviceLimitsOfCalls,
                         testing::Values(LimitedMachine{"cuda:0", 1}, LimitedMachine{"cuda:all", 2}),
                         [](const auto& machine) { return machine.param.devices == 1 ? "OneGpu" : "TwoGpus"; });

TEST(DeviceLimitsOfRows, EndBetweenTwoChunksOfRows) {
  FakeMachine machine;
  const Engine engine = machine.engine({.math = Math::kStrict, .tier = Tier::kInterpret, .device_bytes = 300'000});
  const std::size_t rows = 3 * 4096 + 1777;
  const Workload w = arithmeticWorkload(5, 6, rows, Precision::kF32);
  const auto [data, program] = prepared(engine, w);
  std::vector<float> out(w.expressions.size() * rows);
  const auto kernelsOf = [&](const auto& call) {
    machine.driver.forgetCalls();
    call();
    return machine.driver.kernelsRun();
  };
  Losses before;
  const std::size_t of_loss = kernelsOf([&] { before = engine.loss(program, data, w.parameters).value(); });
  const std::size_t of_predictions =
      kernelsOf([&] { EXPECT_TRUE(engine.evaluate(program, data, w.parameters, std::span<float>(out))); });

  constexpr std::chrono::seconds kLimit(2);
  const Engine hasty = engine.withLimits({.max_seconds = double{kLimit.count()}}).value();
  const std::string limit = fmt::format("{} s", kLimit.count());
  machine.driver.beforeKernels([&](std::size_t kernel) {
    if (kernel == 2) std::this_thread::sleep_for(kLimit);
  });
  const std::size_t of_late_loss =
      kernelsOf([&] { expectLate(hasty.loss(program, data, w.parameters), limit, "loss"); });
  EXPECT_GE(of_late_loss, 2U);
  EXPECT_LT(of_late_loss, of_loss);
  const std::size_t of_late_predictions = kernelsOf(
      [&] { expectLate(hasty.evaluate(program, data, w.parameters, std::span<float>(out)), limit, "predictions"); });
  EXPECT_GE(of_late_predictions, 2U);
  EXPECT_LT(of_late_predictions, of_predictions);
  machine.driver.beforeKernels(nullptr);
  expectSameLosses(engine.loss(program, data, w.parameters).value(), before, "after that");
}

TEST(DeviceLimitsOfLength, ExpressionsLongerThanKernelsAreInterpreted) {
  FakeMachine machine;
  const Engine engine = machine.engine({.math = Math::kStrict});
  for (const LongExpression& some : longExpressions()) {
    Workload w;
    w.expressions = {some.expression};
    w.columns = {{1, 2}, {4, 3}, {1, 1}};
    w.target = {1, 2};
    for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
      const std::size_t rows_before = machine.images->count("rows");
      const Program program = engine.compile(w.expressions, {.tier = tier});
      EXPECT_TRUE(program.failures().empty()) << some.name;
      EXPECT_EQ(machine.images->count("rows"), rows_before) << some.name << " is no kernel";
    }
  }
}

}  // namespace
}  // namespace srjit
