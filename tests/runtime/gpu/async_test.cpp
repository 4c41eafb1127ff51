// submitLoss() and submitEvaluate(): several evaluations in flight, from several threads.
#include <atomic>
#include <thread>

#include "tests/gpu_model/device_engine.h"
#include "tests/runtime/gpu/failing_memory.h"

namespace srjit {
namespace {

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
