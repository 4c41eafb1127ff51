// Shares that a device cannot evaluate: who makes them for other devices, and who waits for that.
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>

#include <gmock/gmock.h>

#include "ir/error.h"
#include "runtime/pool/program.h"
#include "tests/runtime/pool/pooled_machine.h"

namespace srjit {
namespace {

const Error kLost{Errc::kMachine, "the device is lost", {}};

// A call that makes them holds the share's mutex. It is held here until the waiting call has given up.
TEST(PoolOthers, AWaitEndsAtTheDeadline) {
  PoolDevices none({});
  const PoolCompiler compiler(none);
  PoolShare share;
  const std::lock_guard making(share.mutex);
  std::optional<Error> error;
  std::async(std::launch::async, [&] {
    try {
      (void)compiler.othersOf(share, kLost, Deadline(0.01));
    } catch (const ErrorException& failure) {
      error = failure.error();
    }
  }).wait();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, Errc::kLimit);
  EXPECT_FALSE(share.others);
}

TEST(PoolOthers, WhoWaitedGetsWhatTheOtherCallMade) {
  PoolDevices none({});  // nothing can be made there
  const PoolCompiler compiler(none);
  PoolShare share;
  const auto other = std::make_shared<PoolShare>();
  std::unique_lock making(share.mutex);
  std::promise<void> begun;
  std::future<PoolShares> waiting = std::async(std::launch::async, [&] {
    begun.set_value();
    return compiler.othersOf(share, kLost, Deadline()).value();
  });
  begun.get_future().wait();
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout) << "the share is held";
  share.others = PoolShares{other};
  making.unlock();
  EXPECT_EQ(waiting.get(), PoolShares{other});
  EXPECT_EQ(compiler.othersOf(share, kLost, Deadline(1e-9)).value(), PoolShares{other})
      << "nobody waits for a free one";
}

// Several evaluations meet a lost device at once. Later ones use what is there.
TEST(PoolOthers, ServeAllEvaluations) {
  FakeMachine machine(manyDevices(3));
  const Workload w = arithmeticWorkload(41, 30, 200, Precision::kF32);
  const Losses expected = lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {});
  const Engine engine = machine.engine({.device = "cuda:all", .math = Math::kStrict, .tier = Tier::kInterpret});
  const Dataset data = engine.upload(w.view()).value();
  const Program program = engine.compile(w.expressions);
  machine.driver.loseDevice(CUDA_ERROR_ILLEGAL_ADDRESS, 0);
  std::vector<std::future<Losses>> evaluations;
  for (int i = 0; i < 4; ++i) {
    evaluations.push_back(
        std::async(std::launch::async, [&] { return engine.loss(program, data, w.parameters).value(); }));
  }
  for (std::future<Losses>& evaluation : evaluations) expectSameLosses(evaluation.get(), expected, "of the others");
  PoolShare& lost = *program.state().on_pool->shares()[0];
  ASSERT_TRUE(lost.others);
  const PoolShares others = *lost.others;
  EXPECT_EQ(others.size(), 2U);
  expectSameLosses(engine.loss(program, data, w.parameters).value(), expected, "again");
  EXPECT_EQ(*lost.others, others);
}

}  // namespace
}  // namespace srjit
