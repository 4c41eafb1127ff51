// Data that are too large for the memory of each of several devices: each streams them, with the bits of one device.
#include <map>

#include <gmock/gmock.h>

#include "runtime/pool/program.h"
#include "tests/runtime/pool/pooled_machine.h"

namespace srjit {
namespace {

class PoolStreamed : public testing::Test {
 protected:
  static constexpr std::size_t kDevices = 3, kRows = 3 * 4096 + 1777;

  Engine engine() {
    return machine_.engine(
        {.device = "cuda:all", .math = Math::kStrict, .tier = Tier::kInterpret, .device_bytes = 300'000});
  }

  const Workload w_ = arithmeticWorkload(5, 12, kRows, Precision::kF32, true);
  const Engine cpu_ = cpuEngine(Precision::kF32);
  const Losses expected_ = lossesOf(cpu_, w_, Tier::kInterpret, {});
  FakeMachine machine_{manyDevices(kDevices)};
  const Engine all_ = engine();
  const Dataset data_ = all_.upload(w_.view()).value();
  const Program program_ = all_.compile(w_.expressions);
};

// Each device copies all rows, less padding, in each evaluation, and no other memory is taken for them.
TEST_F(PoolStreamed, AreCopiedToEachDevice) {
  ASSERT_EQ(replicasOf(data_.state()).size(), kDevices);
  for (const auto& replica : replicasOf(data_.state())) EXPECT_TRUE(replica->isOnHost());
  machine_.driver.forgetCalls();
  ASSERT_TRUE(all_.loss(program_, data_, w_.parameters).ok());
  std::map<std::uint64_t, std::size_t> copied;
  for (const FakeCall& call : machine_.driver.calls()) {
    if (call.entry == "cuMemcpy2DAsync" && call.detail == "in") copied[call.stream] += call.bytes;
  }
  std::size_t sharing = 0;
  for (const PoolShare& share : *poolProgramOf(program_).shares()) sharing += share.program ? 1 : 0;
  EXPECT_EQ(copied.size(), sharing);
  const std::size_t fields = w_.columns.size() + 2;  // with target and weights
  for (const auto& [stream, bytes] : copied) EXPECT_GE(bytes, fields * kRows * sizeof(float)) << stream;
}

TEST_F(PoolStreamed, Selections) {
  const auto [on_cpu, of_cpu] = prepared(cpu_, w_);
  const std::vector<double> heavy(kRows, 2.5);
  const auto expectSame = [&](const auto& select, bool is_streamed) {
    const Dataset some = select(all_, data_), same = select(cpu_, on_cpu);
    EXPECT_EQ(replicasOf(some.state()).front()->isOnHost(), is_streamed);
    expectSameLosses(all_.loss(program_, some, w_.parameters).value(), cpu_.loss(of_cpu, same, w_.parameters).value(),
                     "selected");
  };
  expectSame([](const Engine& e, const Dataset& d) { return e.rows(d, 4000, 317).value(); }, false);
  expectSame([](const Engine& e, const Dataset& d) { return e.sample(d, 9, 42).value(); }, false);
  expectSame([&](const Engine& e, const Dataset& d) { return e.withWeights(d, heavy).value(); }, true);
}

TEST_F(PoolStreamed, ALostDeviceLeavesItsShareToTheOthers) {
  for (const std::size_t kernels : {1, 2, 3, 4}) {
    const Engine engine = this->engine();
    const auto [data, program] = prepared(engine, w_);
    machine_.driver.failKernel(kernels, CUDA_ERROR_LAUNCH_FAILED);
    expectSameLosses(engine.loss(program, data, w_.parameters).value(), expected_, "lost");
    EXPECT_EQ(engine.notices().size(), 1U);
    expectSameLosses(engine.loss(program, data, w_.parameters).value(), expected_, "afterwards");
    expectSameBits(predict(engine, program, data, w_.parameters), predict(cpu_, w_, Tier::kInterpret), kRows, "lost");
    machine_.driver.loseDevice(CUDA_SUCCESS);
  }
  machine_.driver.loseDevice();
  EXPECT_EQ(all_.loss(program_, data_, w_.parameters).error().code, Errc::kMachine);
}

TEST_F(PoolStreamed, ShortMemoryIsNoLoss) {
  for (std::size_t n = 1; n < 8; ++n) {
    machine_.driver.failAt("cuMemcpyHtoDAsync", n, CUDA_ERROR_OUT_OF_MEMORY);
    const Result<Losses> losses = all_.loss(program_, data_, w_.parameters);
    ASSERT_TRUE(losses.ok()) << losses.error().message;
    expectSameLosses(*losses, expected_, "short of memory");
    // An evaluation of fewer copies would leave the failure to the next one.
    machine_.driver.forgetFailures();
  }
  EXPECT_TRUE(all_.notices().empty());
}

}  // namespace
}  // namespace srjit
