// Gradients and Jacobians on a model of a GPU: the processor's bits in every tier.
#include <gmock/gmock.h>

#include "tests/generators/derivatives.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

class DeviceGradient : public testing::TestWithParam<Precision> {
 protected:
  EngineOptions strict() const { return {.precision = GetParam(), .math = Math::kStrict}; }
};

TEST_P(DeviceGradient, HasTheProcessorsBits) {
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine(strict());
  const Engine cpu = cpuEngine(GetParam());
  for (const std::size_t rows : {1, 129, 700}) {
    const Workload w = arithmeticWorkload(rows, 25, rows, GetParam(), rows > 1);
    for (const DerivativesBy by : {DerivativesBy::kParameters, DerivativesBy::kVariables}) {
      const std::vector<double> jacobian = jacobianOf(cpu, w, Tier::kInterpret, by);
      for (const Tier tier : {Tier::kInterpret, Tier::kDirect, Tier::kCompile}) {
        expectSameBits(jacobianOf(gpu, w, tier, by), jacobian, rows, "jacobian");
        for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip}) {
          const GradientOptions options{.loss = {.kind = LossKind::kRmse, .nan = nan}, .by = by};
          expectSameGradients(gradientsOf(gpu, w, tier, options), gradientsOf(cpu, w, Tier::kInterpret, options),
                              "gradient");
        }
      }
    }
  }
}

TEST_P(DeviceGradient, OfStreamedDataIsTheSame) {
  FakeMachine machine({.lag = true});
  EngineOptions options = strict();
  options.device_bytes = 300'000;
  const Engine gpu = machine.engine(options);
  const Engine cpu = cpuEngine(GetParam());
  const Workload w = arithmeticWorkload(5, 6, 3 * 4096 + 1777, GetParam(), true);
  expectSameGradients(gradientsOf(gpu, w, Tier::kInterpret, {}), gradientsOf(cpu, w, Tier::kInterpret, {}), "streamed");
  EXPECT_GT(machine.driver.count("cuMemHostRegister"), 0U);
}

// Target and weights of adopted columns are not behind them, so the data are copied once.
TEST_P(DeviceGradient, OfAdoptedDataIsTheSame) {
  FakeMachine machine;
  const Engine gpu = machine.engine(strict());
  const Engine cpu = cpuEngine(GetParam());
  const Workload w = arithmeticWorkload(8, 20, 300, GetParam(), true);
  const std::size_t rows = w.rows(), columns = w.columns.size();
  withZeroOf(GetParam(), [&]<class T>(T) {
    std::vector<T> table(rows * columns), target(w.target.begin(), w.target.end()),
        weights(w.weights.begin(), w.weights.end());
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < columns; ++c) table[r * columns + c] = static_cast<T>(w.columns[c][r]);
    }
    constexpr auto kElement = static_cast<std::ptrdiff_t>(sizeof(T));
    const auto matrix = [&](const std::vector<T>& numbers, std::size_t count) {
      return DeviceMatrix{.pointer = machine.driver.allocateForeign(std::as_bytes(std::span(numbers))),
                          .rows = rows,
                          .columns = count,
                          .row_stride = static_cast<std::ptrdiff_t>(count) * kElement,
                          .column_stride = kElement,
                          .type = GetParam()};
    };
    const Dataset data =
        gpu.adopt({.columns = matrix(table, columns), .target = matrix(target, 1), .weights = matrix(weights, 1)})
            .value();
    const Program program = gpu.compile(w.expressions, {.tier = Tier::kInterpret});
    for (int i = 0; i < 2; ++i) {
      expectSameGradients(gpu.gradient(program, data, w.parameters).value(), gradientsOf(cpu, w, Tier::kInterpret, {}),
                          "adopted");
    }
  });
}

// Target and weights are staged in every section.
TEST_P(DeviceGradient, OfManyColumnsIsTheSame) {
  FakeMachine machine;
  const Engine gpu = machine.engine(strict());
  const Engine cpu = cpuEngine(GetParam());
  const GeneratorOptions options{.seed = 3,
                                 .min_nodes = 1,
                                 .max_nodes = 30,
                                 .variables = 400,
                                 .parameters = 2,
                                 .ops = arithmeticOps(),
                                 .constant_probability = 0,
                                 .parameter_probability = 0.2};
  Workload w = Workload::random(options, 60, 200, Spread::kTame, GetParam());
  w.weights.assign(200, 0.5);
  expectSameGradients(gradientsOf(gpu, w, Tier::kInterpret, {}), gradientsOf(cpu, w, Tier::kInterpret, {}), "wide");
}

// One launch for all expressions and parameters, whose graphs were made before.
TEST_P(DeviceGradient, NewParametersCostOneCopyAndNoEncoding) {
  FakeMachine machine;
  const Engine gpu = machine.engine(strict());
  Workload w = arithmeticWorkload(6, 30, 500, GetParam());
  const Dataset data = gpu.upload(w.view()).value();
  const Program program = gpu.compile(w.expressions, {.tier = Tier::kInterpret});
  ASSERT_TRUE(gpu.gradient(program, data, w.parameters).ok());
  for (double& p : w.parameters) p = 2 * p + 1;
  machine.driver.forgetCalls();
  const Gradients got = gpu.gradient(program, data, w.parameters).value();
  expectSameGradients(got, gradientsOf(cpuEngine(GetParam()), w, Tier::kInterpret, {}), "new parameters");
  EXPECT_EQ(machine.driver.count("cuMemcpyHtoDAsync"), 1U);
  EXPECT_EQ(machine.driver.count("cuMemcpyDtoHAsync"), 1U);
  EXPECT_EQ(machine.driver.count("cuLaunchKernel"), 2U) << "the programs and their totals";
}

INSTANTIATE_TEST_SUITE_P(, DeviceGradient, testing::Values(Precision::kF32, Precision::kF64));

// No kernel writes sums of such an expression.
TEST(DeviceGradientOfAFailure, IsNaNAndDisturbsNoOther) {
  const auto run = [](const Dag& dag, const PassContext&) -> Dag {
    if (dag.variableCount() == 3) throw std::runtime_error("pass failure");
    return dag;
  };
  ASSERT_TRUE(registerPass({"throws-for-x2", run, Exactness::kExact, "a pass of a test"}).ok());
  const Pipeline pipeline = Pipeline::parse("standard,throws-for-x2,schedule", Math::kStrict).value();
  Workload w;
  for (const char* const text : {"p0 * x0", "p0 * x2 + p1", "p0 * x1"}) {
    w.expressions.push_back(parse(text, Language::kInfix).value());
  }
  w.columns = {{1, 2, 3, 4, 5}, {0.5, -1, 2, 0.25, 1}, {1, 1, 2, 2, 3}};
  w.target = {2, 1, 4, 3, 6};
  w.parameters = {1, 1, 1, 1};
  FakeMachine machine({.devices = {FakeDevice{}, FakeDevice{}}, .lag = true});
  for (const char* const device : {"cuda:0", "cuda:all"}) {
    const Engine engine = machine.engine({.device = device, .math = Math::kStrict});
    const Dataset data = engine.upload(w.view()).value();
    const Program program = engine.compile(w.expressions, {.tier = Tier::kInterpret, .pipeline = pipeline});
    for (const LossKind kind : {LossKind::kMse, LossKind::kHuber}) {
      for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip}) {
        const LossOptions loss{.kind = kind, .nan = nan};
        const Gradients got = engine.gradient(program, data, w.parameters, {.loss = loss}).value();
        for (const Losses& losses : {got.losses, engine.loss(program, data, w.parameters, loss).value()}) {
          ASSERT_EQ(losses.failures.size(), 1U);
          EXPECT_EQ(losses.failures[0].expression, 1U);
          EXPECT_EQ(losses.failures[0].error.message, "pass throws-for-x2: pass failure");
          EXPECT_TRUE(std::isnan(losses.values[1]));
          EXPECT_EQ(losses.valid_rows[1], 0U);
          EXPECT_TRUE(std::isfinite(losses.values[0]) && std::isfinite(losses.values[2]));
        }
        EXPECT_TRUE(std::isnan(got.derivatives[1]) && std::isnan(got.derivatives[2]));
        EXPECT_TRUE(std::isfinite(got.derivatives[0]) && std::isfinite(got.derivatives[3]));
      }
    }
    const Gradients none = engine.gradient(engine.compile(std::span<const Expression>()), data, {}).value();
    EXPECT_TRUE(none.losses.values.empty() && none.losses.failures.empty() && none.derivatives.empty());
  }
}

}  // namespace
}  // namespace srjit
