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

}  // namespace
}  // namespace srjit
