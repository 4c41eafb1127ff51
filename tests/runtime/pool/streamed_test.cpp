// Data that are too large for the memory of each of several devices: each streams them, with the bits of one device.
#include <map>

#include <gmock/gmock.h>

#include "runtime/pool/program.h"
#include "tests/generators/derivatives.h"
#include "tests/generators/graphs.h"
#include "tests/runtime/pool/pooled_machine.h"

namespace srjit {
namespace {

class PoolStreamed : public testing::TestWithParam<std::size_t> {
 protected:
  static constexpr std::size_t kRows = 3 * 4096 + 1777;

  PoolStreamed()
      : w_(arithmeticWorkload(5, 12, kRows, Precision::kF32, true)),
        machine_(manyDevices(GetParam())),
        all_(machine_.engine(
            {.device = "cuda:all", .math = Math::kStrict, .tier = Tier::kInterpret, .device_bytes = 300'000})),
        data_(all_.upload(w_.view()).value()),
        program_(all_.compile(w_.expressions)) {}
  Dataset onCpu() const { return cpu_.upload(w_.view()).value(); }
  Losses expected(const LossOptions& options = {}) const { return lossesOf(cpu_, w_, Tier::kInterpret, options); }

  const Workload w_;
  const Engine cpu_ = cpuEngine(Precision::kF32);
  FakeMachine machine_;
  const Engine all_;
  const Dataset data_;
  const Program program_;
};

INSTANTIATE_TEST_SUITE_P(, PoolStreamed, testing::Values(2, 3, 8),
                         [](const auto& tested) { return "Of" + std::to_string(tested.param); });

// Each device copies all rows, less padding, in each evaluation, and no other memory is taken for them.
TEST_P(PoolStreamed, AreCopiedToEachDevice) {
  ASSERT_EQ(replicasOf(data_.state()).size(), GetParam());
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

TEST_P(PoolStreamed, HaveTheSameBits) {
  EXPECT_EQ(data_.rows(), kRows);
  EXPECT_EQ(data_.rowGroups(), onCpu().rowGroups());
  for (const NanPolicy nan : kNanPolicies) {
    for (const LossKind kind : {LossKind::kRmse, LossKind::kScaledMse, LossKind::kNmse}) {
      const LossOptions options{.kind = kind, .nan = nan};
      expectSameLosses(all_.loss(program_, data_, w_.parameters, options).value(), expected(options), "streamed");
    }
  }
  expectSameBits(predict(all_, program_, data_, w_.parameters), predict(cpu_, w_, Tier::kInterpret), kRows, "streamed");
  const Dataset on_cpu = onCpu();
  const Program of_cpu = cpu_.compile(w_.expressions);
  expectSameGradients(all_.gradient(program_, data_, w_.parameters).value(),
                      cpu_.gradient(of_cpu, on_cpu, w_.parameters).value(), "streamed");
  expectSameFits(all_.fit(program_, data_, w_.parameters, {.iterations = 5}).value(),
                 cpu_.fit(of_cpu, on_cpu, w_.parameters, {.iterations = 5}).value());
  std::vector<double> vectors = w_.parameters;
  for (const double parameter : w_.parameters) vectors.push_back(parameter + 0.5);
  expectSameLosses(all_.loss(program_, data_, vectors).value(), cpu_.loss(of_cpu, on_cpu, vectors).value(), "vectors");
}

TEST_P(PoolStreamed, RefinedFitsHaveTheSameBits) {
  Workload w = w_;
  for (std::size_t r = 0; r < kRows; ++r) {
    w.columns[0][r] = 1990 + 1e-3 * static_cast<double>(r);
    w.target[r] = std::sin(1e-3 * static_cast<double>(r));
  }
  const std::vector<Expression> quadratic = {infix("p0 + x0*(p1 + x0*p2)")};
  const std::vector<double> start = {1, 1, 1};
  const Dataset data = all_.upload(w.view()).value();
  ASSERT_TRUE(replicasOf(data.state()).front()->isOnHost());
  const Fits fits = all_.fit(all_.compile(quadratic), data, start).value();
  EXPECT_EQ(fits.statuses[0], FitStatus::kConverged);
  EXPECT_TRUE(std::isfinite(fits.standard_errors[2]));
  expectSameFits(fits, cpu_.fit(cpu_.compile(quadratic), cpu_.upload(w.view()).value(), start).value());
}

TEST_P(PoolStreamed, SubmittedAndAsTokenArrays) {
  EXPECT_TRUE(all_.prepare(program_, data_, LossOptions{}).ok());
  std::vector<double> borrowed = w_.parameters;
  Pending<Losses> losses = all_.submitLoss(program_, data_, borrowed).value();
  std::ranges::fill(borrowed, 0.0);
  std::vector<float> out(w_.expressions.size() * kRows);
  auto predictions = all_.submitEvaluate(program_, data_, w_.parameters, std::span<float>(out)).value();
  expectSameLosses(std::move(losses).result().value(), expected(), "submitted");
  EXPECT_TRUE(std::move(predictions).result().value().empty());
  expectSameBits(std::vector<double>(out.begin(), out.end()), predict(cpu_, w_, Tier::kInterpret), kRows, "submitted");
  TokenArrays arrays = tokensOf(w_.expressions);
  arrays.add(Token::variable(77));
  arrays.end();
  const Losses population = all_.loss(arrays.view(), data_, w_.parameters).value();
  const Dataset on_cpu = onCpu();
  const Losses of_cpu = cpu_.loss(arrays.view(), on_cpu, w_.parameters).value();
  expectSameLosses(population, of_cpu, "arrays");
  expectSameReasons(population.failures, of_cpu.failures);
}

TEST_P(PoolStreamed, Selections) {
  const Dataset on_cpu = onCpu();
  const Program of_cpu = cpu_.compile(w_.expressions);
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

TEST_P(PoolStreamed, ALostDeviceLeavesItsShareToTheOthers) {
  for (const std::size_t kernels : {1, 2, 3, 4}) {
    const Engine engine = machine_.engine(
        {.device = "cuda:all", .math = Math::kStrict, .tier = Tier::kInterpret, .device_bytes = 300'000});
    const Dataset data = engine.upload(w_.view()).value();
    const Program program = engine.compile(w_.expressions);
    machine_.driver.failKernel(kernels, CUDA_ERROR_LAUNCH_FAILED);
    expectSameLosses(engine.loss(program, data, w_.parameters).value(), expected(), "lost");
    EXPECT_EQ(engine.notices().size(), 1U);
    expectSameLosses(engine.loss(program, data, w_.parameters).value(), expected(), "afterwards");
    expectSameBits(predict(engine, program, data, w_.parameters), predict(cpu_, w_, Tier::kInterpret), kRows, "lost");
    machine_.driver.loseDevice(CUDA_SUCCESS);
  }
  machine_.driver.loseDevice();
  EXPECT_EQ(all_.loss(program_, data_, w_.parameters).error().code, Errc::kMachine);
}

TEST_P(PoolStreamed, ShortMemoryIsNoLoss) {
  for (std::size_t n = 1; n < 8; ++n) {
    machine_.driver.failAt("cuMemcpyHtoDAsync", n, CUDA_ERROR_OUT_OF_MEMORY);
    const Result<Losses> losses = all_.loss(program_, data_, w_.parameters);
    ASSERT_TRUE(losses.ok()) << losses.error().message;
    expectSameLosses(*losses, expected(), "short of memory");
    // An evaluation of fewer copies would leave the failure to the next one.
    machine_.driver.forgetFailures();
  }
  EXPECT_TRUE(all_.notices().empty());
}

}  // namespace
}  // namespace srjit
