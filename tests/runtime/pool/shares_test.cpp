// Shares of a program on devices: who makes them, who waits for that, and which are kept.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include <gmock/gmock.h>

#include "ir/error.h"
#include "runtime/pool/program.h"
#include "runtime/tiers/device_executor.h"
#include "tests/generators/scratch.h"
#include "tests/gpu_model/direct_machine.h"
#include "tests/runtime/pool/pooled_machine.h"

namespace srjit {
namespace {

/// Three devices without an engine, and a program for them.
class PoolSharesMade : public testing::Test {
 protected:
  static std::vector<PoolDevice> open(FakeMachine& machine) {
    std::vector<PoolDevice> devices;
    for (unsigned i = 0; i < 3; ++i) {
      const EngineOptions options{.device = fmt::format("cuda:{}", i),
                                  .math = Math::kStrict,
                                  .tier = Tier::kInterpret,
                                  .threads = 1,
                                  .cache_directory = ""};
      devices.push_back({options.device, makeDeviceExecutor(options, i, machine.driver.load().value(), machine.images,
                                                            openKernelCache(options))
                                             .value()});
    }
    return devices;
  }
  static std::shared_ptr<const ProgramSource> source() {
    auto source = std::make_shared<ProgramSource>();
    source->math = Math::kStrict;
    source->set(arithmeticWorkload(41, 30, 20, Precision::kF32).expressions, 0, false);
    return source;
  }
  Result<std::shared_ptr<const PoolShares>> sharesOn(DeviceNumbers devices, const Deadline& deadline = {}) {
    return program_.sharesOn(pool_, devices, nullptr, deadline);
  }

  FakeMachine machine_{manyDevices(3)};
  PoolDevices pool_{open(machine_)};
  PoolProgram program_{source(), Tier::kInterpret, {}};
};

// The other call is in the driver until the waiting one has given up.
TEST_F(PoolSharesMade, AWaitEndsAtTheDeadline) {
  std::promise<void> may_end, is_making;
  std::atomic<bool> is_first = true;
  machine_.driver.beforeCalls("cuMemAllocFromPoolAsync", [&, end = may_end.get_future().share()](int) {
    if (is_first.exchange(false)) is_making.set_value();
    end.wait();
  });
  auto making = std::async(std::launch::async, [&] { return sharesOn({1, 2}).value(); });
  is_making.get_future().wait();
  std::optional<Error> error;
  try {
    (void)sharesOn({1, 2}, Deadline(0.01));
  } catch (const ErrorException& failure) {
    error = failure.error();
  }
  may_end.set_value();
  const auto made = making.get();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, Errc::kLimit);
  EXPECT_EQ(sharesOn({1, 2}, Deadline(1e-9)).value(), made) << "nobody waits for a free one";
}

TEST_F(PoolSharesMade, KeepTheMostRecentlyUsed) {
  const auto all = sharesOn({0, 1, 2}).value();
  const auto pair = sharesOn({1, 2}).value();
  EXPECT_EQ(pair->size(), 2U);
  EXPECT_EQ(program_.shares(), pair);
  EXPECT_EQ(sharesOn({0, 1, 2}).value(), all);
  EXPECT_EQ(program_.shares(), all);
  EXPECT_EQ(sharesOn({1, 2}).value(), pair);
}

// Programs that other devices have made stay.
TEST_F(PoolSharesMade, OnlyTheMissingProgramIsMadeAgain) {
  for (std::size_t n = 1; n <= 20; ++n) {
    machine_.driver.failAt("cuMemAllocFromPoolAsync", n, CUDA_ERROR_OUT_OF_MEMORY, 1);
  }
  DeviceNumbers devices = {0, 1, 2};
  const auto failed = program_.sharesOn(pool_, devices, nullptr, {});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Errc::kMachine);
  EXPECT_EQ(devices, DeviceNumbers({0, 2}));
  EXPECT_TRUE(pool_.notices().empty());
  const auto before = program_.shares();
  EXPECT_FALSE((*before)[1].program);
  machine_.driver.forgetFailures();
  const auto after = sharesOn({0, 1, 2}).value();
  EXPECT_TRUE((*after)[1].program);
  for (const std::size_t i : {0, 2}) EXPECT_EQ(&(*after)[i].program->state(), &(*before)[i].program->state());
}

// Several evaluations meet a lost device at once. Later ones use the same shares.
TEST(PoolOthers, ServeAllEvaluations) {
  FakeMachine machine(manyDevices(3));
  const Workload w = arithmeticWorkload(41, 30, 200, Precision::kF32);
  const Losses expected = lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {});
  const Engine engine = machine.engine({.device = "cuda:all", .math = Math::kStrict, .tier = Tier::kInterpret});
  const auto [data, program] = prepared(engine, w);
  machine.driver.loseDevice(CUDA_ERROR_ILLEGAL_ADDRESS, 0);
  std::vector<std::future<Losses>> evaluations;
  for (int i = 0; i < 4; ++i) {
    evaluations.push_back(
        std::async(std::launch::async, [&] { return engine.loss(program, data, w.parameters).value(); }));
  }
  for (std::future<Losses>& evaluation : evaluations) expectSameLosses(evaluation.get(), expected, "of the others");
  const auto others = poolProgramOf(program).shares();
  EXPECT_EQ(others->size(), 2U);
  expectSameLosses(engine.loss(program, data, w.parameters).value(), expected, "again");
  EXPECT_EQ(poolProgramOf(program).shares(), others);
}

TEST(ManyDevices, EachHasAShare) {
  constexpr std::size_t kDevices = 8;
  FakeMachine machine(manyDevices(kDevices));
  const Engine all = machine.engine({.device = "cuda:all", .math = Math::kStrict});
  const Workload w = arithmeticWorkload(7, 64, 100, Precision::kF32);
  const Program program = all.compile(w.expressions);
  const auto shares = poolProgramOf(program).shares();
  ASSERT_EQ(shares->size(), kDevices);
  for (std::size_t i = 0; i < shares->size(); ++i) {
    EXPECT_EQ((*shares)[i].device, i);
    EXPECT_TRUE((*shares)[i].program);
  }
  const Dataset data = all.upload(w.view()).value();
  EXPECT_TRUE(all.loss(program, data, w.parameters).ok());
  for (std::size_t i = 0; i < kDevices; ++i) EXPECT_GT(machine.driver.usedBytes(static_cast<int>(i)), 0U);
  const ProgramStatus status = program.status();
  EXPECT_EQ(status.evaluations, 1U);
  EXPECT_EQ(status.served.interpreted + status.served.direct + status.served.compiled, 64U);
  EXPECT_EQ(status.tier, Tier::kInterpret);
  EXPECT_GT(program.info().nodes_after, 64U);
}

// Direct code is proved once for each kind of device: of four devices two are alike each. A second engine has no
// self-tests.
TEST(ManyDevicesTiersSlow, HaveTheSameBits) {
  FakeMachine machine(manyDevices(4));
  const Scratch directory;
  const Workload w = arithmeticWorkload(9, 24, 130, Precision::kF32);
  const Engine cpu = cpuEngine(Precision::kF32);
  const EngineOptions options{.device = "cuda:all", .math = Math::kStrict, .cache_directory = directory.path("")};
  const auto launches = [&](const Engine& engine) {
    machine.driver.forgetCalls();
    const Dataset data = engine.upload(w.view()).value();
    const Program program = engine.compile(w.expressions, {.tier = Tier::kDirect});
    // A device that waits in vain for the self-test of its like interprets, and asks again after kPatienceSeconds.
    for (int i = 0; i < 300 && program.status().served.direct < w.expressions.size(); ++i) {
      if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_TRUE(engine.loss(program, data, w.parameters).ok());
    }
    return directCalls(machine.driver, "cuLaunchKernel");
  };
  const Engine all = machine.engine(options);
  const std::size_t first = launches(all), second = launches(machine.engine(options));
  EXPECT_GE(second, 4U) << "each device has a share";
  EXPECT_EQ(first / kSelfTestLaunches, 2U) << "of each kind of device";
  EXPECT_LT(second, kSelfTestLaunches);
  const Dataset data = all.upload(w.view()).value();
  for (const Tier tier : {Tier::kDirect, Tier::kCompile}) {
    const Program program = all.compile(w.expressions, {.tier = tier});
    expectSameLosses(all.loss(program, data, w.parameters).value(), lossesOf(cpu, w, Tier::kInterpret, {}), "losses");
    expectSameBits(predict(all, program, data, w.parameters), predict(cpu, w, Tier::kInterpret), w.rows(),
                   "predictions");
    const ServedExpressions served = program.status().served;
    EXPECT_EQ(tier == Tier::kDirect ? served.direct : served.compiled, w.expressions.size());
    EXPECT_EQ(program.status().tier, tier);
  }
}
}  // namespace
}  // namespace srjit
