// Devices of several that are lost, or that cannot do their share: the others do it.
#include <gmock/gmock.h>

#include "runtime/pool/program.h"
#include "tests/runtime/pool/pooled_machine.h"

namespace srjit {
namespace {

using testing::HasSubstr;

class LostOfMany : public testing::TestWithParam<std::size_t> {
 protected:
  Engine engine() { return machine_.engine({.device = "cuda:all", .math = Math::kStrict, .tier = Tier::kInterpret}); }
  int last() const { return static_cast<int>(GetParam()) - 1; }
  void expectNotice(std::size_t count = 1) const {
    const std::vector<std::string> notices = engine_.notices();
    ASSERT_EQ(notices.size(), count);
    EXPECT_THAT(notices.back(), HasSubstr(" is lost: "));
  }

  const Workload w_ = arithmeticWorkload(41, 30, 200, Precision::kF32);
  const Losses expected_ = lossesOf(cpuEngine(Precision::kF32), w_, Tier::kInterpret, {});
  FakeMachine machine_{manyDevices(GetParam())};
  const Engine engine_ = engine();
};

INSTANTIATE_TEST_SUITE_P(, LostOfMany, testing::Values(2, 8),
                         [](const auto& tested) { return "Of" + std::to_string(tested.param); });

TEST_P(LostOfMany, DuringTheUpload) {
  machine_.driver.loseAt(last(), "cuMemAllocFromPoolAsync", 1);
  const Dataset data = engine_.upload(w_.view()).value();
  expectNotice();
  EXPECT_THAT(engine_.notices()[0], testing::StartsWith(fmt::format("device cuda:{} is lost: cu", last())));
  EXPECT_THAT(engine_.notices()[0], testing::EndsWith("; the other devices do its share"));
  expectSameLosses(engine_.loss(engine_.compile(w_.expressions), data, w_.parameters).value(), expected_, "upload");
}

TEST_P(LostOfMany, BetweenUploadAndCompile) {
  const Dataset data = engine_.upload(w_.view()).value();
  machine_.driver.loseDevice(CUDA_ERROR_ILLEGAL_ADDRESS, 0);
  const Program program = engine_.compile(w_.expressions);
  EXPECT_TRUE(program.failures().empty());
  expectNotice();
  expectSameLosses(engine_.loss(program, data, w_.parameters).value(), expected_, "compile");
}

TEST_P(LostOfMany, BeforeTheEvaluation) {
  const auto [data, program] = prepared(engine_, w_);
  machine_.driver.loseDevice(CUDA_ERROR_ILLEGAL_ADDRESS, 0);
  expectSameLosses(engine_.loss(program, data, w_.parameters).value(), expected_, "evaluation");
  expectNotice();
  expectSameLosses(engine_.loss(program, data, w_.parameters).value(), expected_, "again");
  expectSameBits(predict(engine_, program, data, w_.parameters), predict(cpuEngine(Precision::kF32), w_, Tier::kAuto),
                 w_.rows(), "predictions");
  expectNotice();
  EXPECT_EQ(program.status().served.interpreted, w_.expressions.size());
  const Program fresh = engine_.compile(w_.expressions);
  EXPECT_EQ(poolProgramOf(fresh).shares()->size(), GetParam() - 1);
  EXPECT_TRUE(engine_.prepare(program, data, LossOptions{}).ok());
}

// A kernel fails while all shares are in flight, of losses and of predictions.
TEST_P(LostOfMany, InFlight) {
  const auto [data, program] = prepared(engine_, w_);
  Pending<Losses> pending = engine_.submitLoss(program, data, w_.parameters).value();
  Pending<Losses> next = engine_.submitLoss(program, data, w_.parameters).value();
  machine_.driver.loseDevice(CUDA_ERROR_LAUNCH_FAILED, last());
  pending.wait();
  EXPECT_TRUE(pending.ready());
  expectSameLosses(std::move(pending).result().value(), expected_, "in flight");
  expectNotice();
  expectSameLosses(std::move(next).result().value(), expected_, "in flight, too");
  expectNotice();
}

TEST_P(LostOfMany, ByAnyKernel) {
  const std::vector<double> predictions = predict(cpuEngine(Precision::kF32), w_, Tier::kAuto);
  for (std::size_t n = 1; n <= 2 * GetParam(); ++n) {
    const Engine engine = this->engine();
    const auto [data, program] = prepared(engine, w_);
    machine_.driver.failKernel(n, CUDA_ERROR_ILLEGAL_INSTRUCTION);
    if (n % 2 == 0) {
      expectSameLosses(engine.loss(program, data, w_.parameters).value(), expected_, "a kernel");
    } else {
      expectSameBits(predict(engine, program, data, w_.parameters), predictions, w_.rows(), "a kernel");
    }
    EXPECT_LE(engine.notices().size(), 1U);
    // The next engine has contexts that work.
    machine_.driver.failKernel(0, CUDA_SUCCESS);
    machine_.driver.loseDevice(CUDA_SUCCESS);
  }
}

TEST_P(LostOfMany, DuringAFit) {
  const Workload w = fitWorkload(30, 200, Precision::kF32);
  const auto [data, program] = prepared(engine_, w);
  const Engine cpu = cpuEngine(Precision::kF32);
  const auto [on_cpu, of_cpu] = prepared(cpu, w);
  const Fits expected = cpu.fit(of_cpu, on_cpu, w.parameters).value();
  machine_.driver.failKernel(3 * GetParam(), CUDA_ERROR_ILLEGAL_ADDRESS);
  expectSameFits(engine_.fit(program, data, w.parameters).value(), expected);
  expectNotice();
  const Dataset some = engine_.rows(data, 0, 100).value();
  EXPECT_EQ(some.rows(), 100U);
}

TEST_P(LostOfMany, OneAfterTheOther) {
  const auto [data, program] = prepared(engine_, w_);
  for (int device = 0; device < last(); ++device) {
    machine_.driver.loseDevice(CUDA_ERROR_ILLEGAL_ADDRESS, device);
    expectSameLosses(engine_.loss(program, data, w_.parameters).value(), expected_, "fewer");
    expectNotice(static_cast<std::size_t>(device) + 1);
  }
  Pending<Losses> pending = engine_.submitLoss(program, data, w_.parameters).value();
  machine_.driver.loseDevice(CUDA_ERROR_ILLEGAL_ADDRESS, last());
  const Result<Losses> lost = std::move(pending).result();
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, Errc::kMachine);
  EXPECT_THAT(lost.error().message, HasSubstr("all devices are lost, the last one with: "));
  expectNotice(GetParam());
  EXPECT_THAT(engine_.notices().back(), testing::EndsWith("; no device is left"));
  EXPECT_EQ(engine_.loss(program, data, w_.parameters).error().code, Errc::kMachine);
  EXPECT_EQ(engine_.upload(w_.view()).error().code, Errc::kMachine);
  EXPECT_EQ(engine_.rows(data, 0, 5).error().code, Errc::kMachine);
  const Program failed = engine_.compile(w_.expressions);
  EXPECT_EQ(failed.failures().size(), w_.expressions.size());
  EXPECT_THAT(failed.failures()[0].error.message, HasSubstr("all devices are lost"));
}

TEST_P(LostOfMany, AllAtOnce) {
  const auto [data, program] = prepared(engine_, w_);
  machine_.driver.loseDevice();
  const Result<Losses> lost = engine_.loss(program, data, w_.parameters);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, Errc::kMachine);
  expectNotice(GetParam());
}

// Too little memory of one device, of each in turn, is no loss.
TEST_P(LostOfMany, ShortMemoryIsNoLoss) {
  const auto [data, program] = prepared(engine_, w_);
  for (int n = 0; n < 12; ++n) {
    const int device = n % (last() + 1);
    machine_.driver.failAt("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY, device);
    machine_.driver.failAt("cuMemcpyHtoDAsync", 1, CUDA_ERROR_OUT_OF_MEMORY, device);
    const Result<Losses> losses = engine_.loss(program, data, w_.parameters);
    ASSERT_TRUE(losses.ok()) << losses.error().message;
    expectSameLosses(*losses, expected_, "short of memory");
    // A failure left over would hit this device while it does the next one's share.
    machine_.driver.forgetFailures();
    const auto shares = poolProgramOf(program).shares();
    EXPECT_EQ(shares->size(), GetParam() - 1);
    for (const PoolShare& share : *shares) EXPECT_NE(share.device, static_cast<std::size_t>(device));
  }
  EXPECT_TRUE(engine_.notices().empty());
  // The next call asks all of them.
  expectSameLosses(engine_.loss(program, data, w_.parameters).value(), expected_, "with memory");
  EXPECT_EQ(poolProgramOf(program).shares()->size(), GetParam());
}

// Nor is too little memory of all but one, whichever that is.
TEST_P(LostOfMany, ShortMemoryOfAllButOneIsNoLoss) {
  const auto [data, program] = prepared(engine_, w_);
  for (std::size_t n = 1; n < 4 * GetParam(); ++n) {
    for (int device = 0; device <= last(); ++device) {
      if (static_cast<std::size_t>(device) == n % GetParam()) continue;
      machine_.driver.failAt("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY, device);
      // While a device makes a program for fewer devices, or evaluates.
      for (std::size_t copy = 1; copy <= n; ++copy) {
        machine_.driver.failAt("cuMemcpyHtoDAsync", copy, CUDA_ERROR_OUT_OF_MEMORY, device);
      }
    }
    const Result<Losses> losses = engine_.loss(program, data, w_.parameters);
    ASSERT_TRUE(losses.ok()) << losses.error().message;
    expectSameLosses(*losses, expected_, "short of memory");
    machine_.driver.forgetFailures();
  }
  EXPECT_TRUE(engine_.notices().empty());
}

// After the first GPU is lost, the second has no memory for its new share. The third evaluates all until the second
// has.
TEST(PoolFaults, WhatADeviceHadNoMemoryToMakeItMakesLater) {
  FakeMachine machine(manyDevices(3));
  const Workload w = arithmeticWorkload(41, 30, 200, Precision::kF32);
  const Losses expected = lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {});
  const Engine engine = machine.engine({.device = "cuda:all", .math = Math::kStrict, .tier = Tier::kInterpret});
  const auto [data, program] = prepared(engine, w);
  const auto expectLosses = [&](const char* when) {
    expectSameLosses(engine.loss(program, data, w.parameters).value(), expected, when);
    EXPECT_EQ(program.status().served.interpreted, w.expressions.size()) << when;
  };
  expectLosses("on all");
  machine.driver.loseDevice(CUDA_ERROR_ILLEGAL_ADDRESS, 0);
  for (std::size_t n = 1; n <= 20; ++n) {
    machine.driver.failAt("cuMemAllocFromPoolAsync", n, CUDA_ERROR_OUT_OF_MEMORY, 1);
  }
  expectLosses("without memory");
  const auto without = poolProgramOf(program).shares();
  ASSERT_EQ(without->size(), 1U);
  EXPECT_EQ(without->front().device, 2U);
  machine.driver.forgetFailures();
  expectLosses("with memory");
  const auto with = poolProgramOf(program).shares();
  ASSERT_EQ(with->size(), 2U);
  EXPECT_EQ(with->front().device, 1U);
  EXPECT_TRUE(with->front().program);
  machine.driver.loseDevice(CUDA_ERROR_ILLEGAL_ADDRESS, 2);
  expectLosses("alone");
}

// Every call of the driver fails once: the others do it, or there is an error; never wrong numbers.
TEST(PoolFaults, EveryCallMayFailOnce) {
  const Workload w = arithmeticWorkload(31, 10, 150, Precision::kF32);
  const Losses expected = lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {});
  const std::vector<double> predictions = predict(cpuEngine(Precision::kF32), w, Tier::kInterpret);
  std::size_t served = 0;
  for (const char* const entry : {"cuMemAllocFromPoolAsync", "cuMemcpyHtoDAsync", "cuMemcpy2DAsync", "cuLaunchKernel",
                                  "cuStreamSynchronize", "cuEventSynchronize", "cuModuleLoadDataEx"}) {
    for (std::size_t n = 1; n < 200; ++n) {
      SCOPED_TRACE(fmt::format("call {} of {}", n, entry));
      FakeMachine machine(manyDevices(2, false));
      const Engine engine = machine.engine({.device = "cuda:all", .math = Math::kStrict, .tier = Tier::kInterpret});
      machine.driver.forgetCalls();
      machine.driver.failAt(entry, n, CUDA_ERROR_OUT_OF_MEMORY);
      const Result<Dataset> data = engine.upload(w.view());
      ASSERT_TRUE(data.ok()) << data.error().message;
      const Program program = engine.compile(w.expressions);
      ASSERT_TRUE(program.failures().empty());
      const Result<Losses> losses = engine.loss(program, *data, w.parameters);
      ASSERT_TRUE(losses.ok()) << losses.error().message;
      expectSameLosses(*losses, expected, entry);
      expectSameBits(predict(engine, program, *data, w.parameters), predictions, w.rows(), entry);
      ++served;
      if (machine.driver.count(entry) < n) break;
    }
  }
  EXPECT_GT(served, 20U);
}

}  // namespace
}  // namespace srjit
