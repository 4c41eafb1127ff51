// Columns and output in the memory of one of several GPUs.
#include <gmock/gmock.h>

#include "runtime/evaluation/dataset_state.h"
#include "runtime/pool/program.h"
#include "tests/generators/derivatives.h"
#include "tests/runtime/pool/pooled_machine.h"

namespace srjit {
namespace {

constexpr std::size_t kDevices = 3;

/// Numbers of the caller on a device, as columns behind one another.
class OnDevice {
 public:
  OnDevice(FakeMachine& machine, int device, const std::vector<std::vector<double>>& columns) : machine_(machine) {
    std::vector<float> numbers;
    for (const auto& column : columns) numbers.insert(numbers.end(), column.begin(), column.end());
    const std::size_t rows = columns[0].size();
    matrix_ = {.pointer = machine.driver.allocateForeign(std::as_bytes(std::span(numbers)), device),
               .rows = rows,
               .columns = columns.size(),
               .row_stride = sizeof(float),
               .column_stride = static_cast<std::ptrdiff_t>(rows * sizeof(float))};
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { machine_.driver.freeForeign(matrix_.pointer); }

  const DeviceMatrix& matrix() const { return matrix_; }
  /// The same memory for output: each column is that of one expression.
  DeviceMatrix output() const {
    DeviceMatrix turned = matrix_;
    std::swap(turned.rows, turned.columns);
    std::swap(turned.row_stride, turned.column_stride);
    return turned;
  }
  std::vector<double> numbers() const {
    const std::size_t count = matrix_.rows * matrix_.columns;
    const std::vector<std::byte> bytes = machine_.driver.readForeign(matrix_.pointer, count * sizeof(float));
    std::vector<float> numbers(count);
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return {numbers.begin(), numbers.end()};
  }

 private:
  FakeMachine& machine_;
  DeviceMatrix matrix_;
};

class PooledMemory : public testing::TestWithParam<int> {
 protected:
  FakeMachine machine_{manyDevices(kDevices)};
  Engine all_ = machine_.engine({.device = "cuda:all", .math = Math::kStrict});
  Engine one_ = machine_.engine({.math = Math::kStrict});
};

INSTANTIATE_TEST_SUITE_P(, PooledMemory, testing::Values(0, 2),
                         [](const auto& tested) { return "Of" + std::to_string(tested.param); });

TEST_P(PooledMemory, AdoptedColumnsAreCopiedToTheOthers) {
  const Workload w = arithmeticWorkload(3, 20, 301, Precision::kF32, true);
  const OnDevice columns(machine_, GetParam(), w.columns), target(machine_, GetParam(), {w.target}),
      weights(machine_, GetParam(), {w.weights});
  DeviceMatrix upside_down = columns.matrix();
  upside_down.pointer += 300 * sizeof(float);
  upside_down.row_stride = -static_cast<std::ptrdiff_t>(sizeof(float));
  Workload turned = w;
  for (auto& column : turned.columns) std::ranges::reverse(column);
  for (const auto& [matrix, same] : {std::pair(columns.matrix(), w), std::pair(upside_down, turned)}) {
    const Dataset data =
        all_.adopt({.columns = matrix, .target = target.matrix(), .weights = weights.matrix()}).value();
    EXPECT_EQ(data.rows(), 301U);
    const Program program = all_.compile(w.expressions);
    expectSameLosses(all_.loss(program, data, w.parameters).value(), lossesOf(one_, same, Tier::kAuto, {}), "adopted");
    expectSameGradients(all_.gradient(program, data, w.parameters).value(), gradientsOf(one_, same, Tier::kAuto, {}),
                        "adopted");
  }
}

// If a device once lacks memory for a copy of the target beside adopted columns, a later call makes the copy.
TEST_P(PooledMemory, ACopyThatFailsOnceIsMadeLater) {
  const Workload w = arithmeticWorkload(3, 20, 301, Precision::kF32);
  const OnDevice columns(machine_, GetParam(), w.columns), target(machine_, GetParam(), {w.target});
  const Program program = all_.compile(w.expressions);
  const Gradients expected = gradientsOf(one_, w, Tier::kAuto, {});
  std::size_t missed = 0;
  for (const std::size_t n : {1, 2, 3, 4}) {
    const Dataset data = all_.adopt({.columns = columns.matrix(), .target = target.matrix()}).value();
    machine_.driver.failAt("", n, CUDA_ERROR_OUT_OF_MEMORY, GetParam());
    expectSameGradients(all_.gradient(program, data, w.parameters).value(), expected, "without one");
    machine_.driver.forgetFailures();
    missed += data.state().copy_with_target == nullptr ? 1 : 0;
    expectSameGradients(all_.gradient(program, data, w.parameters).value(), expected, "with all");
    ASSERT_NE(data.state().copy_with_target, nullptr);
    EXPECT_THAT(replicasOf(*data.state().copy_with_target), testing::Each(testing::NotNull()));
  }
  EXPECT_GT(missed, 0U);
}

TEST_P(PooledMemory, OutputOfAllDevicesIsThere) {
  const Workload w = arithmeticWorkload(5, 20, 130, Precision::kF32);
  const OnDevice out(machine_, GetParam(), std::vector(20, std::vector<double>(130, 12345.0)));
  const Dataset data = all_.upload(w.view()).value();
  const Program program = all_.compile(w.expressions);
  const auto failures = all_.evaluate(program, data, w.parameters, out.output());
  ASSERT_TRUE(failures.ok()) << failures.error().message;
  expectSameBits(out.numbers(), predict(one_, w, Tier::kAuto), w.rows(), "on a device");
}

TEST_P(PooledMemory, FailedExpressionsAreNaNThere) {
  const Workload w = arithmeticWorkload(5, 8, 130, Precision::kF32);
  std::vector<Expression> expressions = w.expressions;
  expressions.push_back(build({Token::variable(50)}));
  const OnDevice out(machine_, GetParam(), std::vector(9, std::vector<double>(130, 12345.0)));
  const Dataset data = all_.upload(w.view()).value();
  const auto failures = all_.evaluate(all_.compile(expressions), data, w.parameters, out.output()).value();
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].expression, 8U);
  const std::vector<double> numbers = out.numbers();
  expectSameBits(std::span(numbers).first(8 * 130), predict(one_, w, Tier::kAuto), w.rows(), "on a device");
  EXPECT_TRUE(std::isnan(numbers.back()));
}

TEST_P(PooledMemory, Weights) {
  Workload w = arithmeticWorkload(7, 10, 200, Precision::kF32, true);
  const OnDevice weights(machine_, GetParam(), {w.weights});
  Workload without = w;
  without.weights.clear();
  const Dataset data = all_.withWeights(all_.upload(without.view()).value(), weights.matrix()).value();
  expectSameLosses(all_.loss(all_.compile(w.expressions), data, w.parameters).value(),
                   lossesOf(one_, w, Tier::kAuto, {}), "weights of a device");
}

TEST(PooledMemoryOfNone, IsRefused) {
  FakeMachine machine(manyDevices(3));
  const Engine some = machine.engine({.device = "cuda:0,2", .math = Math::kStrict});
  const Workload w = arithmeticWorkload(7, 3, 20, Precision::kF32);
  const OnDevice columns(machine, 1, w.columns);
  const Result<Dataset> data = some.adopt({.columns = columns.matrix()});
  ASSERT_FALSE(data.ok());
  EXPECT_EQ(data.error().code, Errc::kUnsupported);
  EXPECT_THAT(data.error().message, testing::EndsWith("which is not memory of a device of cuda:0,2"));
}

}  // namespace
}  // namespace srjit
