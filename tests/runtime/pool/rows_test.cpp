// Data that are too large for each of several devices: rows on each, with the bits of one device.
#include <gmock/gmock.h>

#include "runtime/pool/program.h"
#include "runtime/pool/rows.h"
#include "tests/generators/derivatives.h"
#include "tests/generators/graphs.h"
#include "tests/runtime/pool/pooled_machine.h"

namespace srjit {
namespace {

TEST(DividedRows, BeginWithTheFirstChain) {
  constexpr std::size_t kQuantum = 4096;
  EXPECT_EQ(divideRows(5, 3), std::vector<std::size_t>({0, 5}));
  EXPECT_EQ(divideRows(kQuantum + 1, 3), std::vector<std::size_t>({0, kQuantum, kQuantum + 1}));
  EXPECT_EQ(divideRows(10 * kQuantum, 2), std::vector<std::size_t>({0, 5 * kQuantum, 10 * kQuantum}));
  EXPECT_EQ(divideRows(7 * kQuantum - 9, 3),
            std::vector<std::size_t>({0, 2 * kQuantum, 4 * kQuantum, 7 * kQuantum - 9}));
}

class DividedData : public testing::TestWithParam<std::size_t> {
 protected:
  static constexpr std::size_t kRows = 3 * 4096 + 1777;

  DividedData()
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

INSTANTIATE_TEST_SUITE_P(, DividedData, testing::Values(2, 3, 8),
                         [](const auto& tested) { return "Of" + std::to_string(tested.param); });

TEST_P(DividedData, AreResidentOnTheDevices) {
  ASSERT_NE(data_.state().divided, nullptr);
  EXPECT_EQ(data_.state().divided->parts().size(), std::min<std::size_t>(GetParam(), 4));
  machine_.driver.forgetCalls();
  ASSERT_TRUE(all_.loss(program_, data_, w_.parameters).ok());
  EXPECT_EQ(machine_.driver.count("cuMemHostRegister"), 0U);
  for (const FakeCall& call : machine_.driver.calls()) {
    EXPECT_LT(call.bytes, kRows) << call.entry << ": rows are copied";
  }
}

TEST_P(DividedData, HaveTheSameBits) {
  EXPECT_EQ(data_.rows(), kRows);
  EXPECT_EQ(data_.rowGroups(), onCpu().rowGroups());
  for (const NanPolicy nan : kNanPolicies) {
    for (const LossKind kind : {LossKind::kRmse, LossKind::kScaledMse, LossKind::kNmse}) {
      const LossOptions options{.kind = kind, .nan = nan};
      expectSameLosses(all_.loss(program_, data_, w_.parameters, options).value(), expected(options), "divided");
    }
  }
  expectSameBits(predict(all_, program_, data_, w_.parameters), predict(cpu_, w_, Tier::kInterpret), kRows, "divided");
  const Dataset on_cpu = onCpu();
  const Program of_cpu = cpu_.compile(w_.expressions);
  expectSameGradients(all_.gradient(program_, data_, w_.parameters).value(),
                      cpu_.gradient(of_cpu, on_cpu, w_.parameters).value(), "divided");
  expectSameFits(all_.fit(program_, data_, w_.parameters, {.iterations = 5}).value(),
                 cpu_.fit(of_cpu, on_cpu, w_.parameters, {.iterations = 5}).value());
  std::vector<double> vectors = w_.parameters;
  for (const double parameter : w_.parameters) vectors.push_back(parameter + 0.5);
  expectSameLosses(all_.loss(program_, data_, vectors).value(), cpu_.loss(of_cpu, on_cpu, vectors).value(), "vectors");
}

// Residuals and derivatives of each row come from all devices.
TEST_P(DividedData, RefinedFitsHaveTheSameBits) {
  Workload w = w_;
  for (std::size_t r = 0; r < kRows; ++r) {
    w.columns[0][r] = 1990 + 1e-3 * static_cast<double>(r);
    w.target[r] = std::sin(1e-3 * static_cast<double>(r));
  }
  const std::vector<Expression> quadratic = {infix("p0 + x0*(p1 + x0*p2)")};
  const std::vector<double> start = {1, 1, 1};
  const Dataset data = all_.upload(w.view()).value();
  ASSERT_NE(data.state().divided, nullptr);
  const Fits fits = all_.fit(all_.compile(quadratic), data, start).value();
  EXPECT_EQ(fits.statuses[0], FitStatus::kConverged);
  EXPECT_TRUE(std::isfinite(fits.standard_errors[2]));
  expectSameFits(fits, cpu_.fit(cpu_.compile(quadratic), cpu_.upload(w.view()).value(), start).value());
}

TEST_P(DividedData, SubmittedAndAsTokenArrays) {
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

TEST_P(DividedData, Selections) {
  const Dataset on_cpu = onCpu();
  const Program of_cpu = cpu_.compile(w_.expressions);
  const std::vector<double> heavy(kRows, 2.5);
  const auto expectSame = [&](const auto& select, bool is_divided) {
    const Dataset some = select(all_, data_), same = select(cpu_, on_cpu);
    EXPECT_EQ(some.state().divided != nullptr, is_divided);
    expectSameLosses(all_.loss(program_, some, w_.parameters).value(), cpu_.loss(of_cpu, same, w_.parameters).value(),
                     "selected");
  };
  expectSame([](const Engine& e, const Dataset& d) { return e.rows(d, 4000, 317).value(); }, false);
  expectSame([](const Engine& e, const Dataset& d) { return e.sample(d, 9, 42).value(); }, false);
  expectSame([&](const Engine& e, const Dataset& d) { return e.withWeights(d, heavy).value(); }, true);
}

TEST_P(DividedData, ALostDevicesRowsAreStreamedByTheOthers) {
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

TEST_P(DividedData, ShortMemoryIsNoLoss) {
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
