// Predictions and derivatives in a caller's memory of a GPU, on a model of one.
#include <gmock/gmock.h>

#include "runtime/cuda/handles.h"
#include "tests/generators/derivatives.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

/// Memory of the caller, filled with numbers that no expression gives.
class CallersMemory {
 public:
  CallersMemory(FakeMachine& machine, std::size_t outputs, std::size_t rows, Precision precision)
      : machine_(machine), count_(outputs * rows) {
    const auto element = static_cast<std::ptrdiff_t>(bytesOf(precision));
    withZeroOf(precision, [&]<class T>(T) {
      const std::vector<T> image(count_, T(12345));
      matrix_.pointer = machine.driver.allocateForeign(std::as_bytes(std::span(image)));
    });
    matrix_.rows = outputs;
    matrix_.columns = rows;
    matrix_.row_stride = element * static_cast<std::ptrdiff_t>(rows);
    matrix_.column_stride = element;
    matrix_.type = precision;
  }
  CallersMemory(const CallersMemory&) = delete;
  CallersMemory& operator=(const CallersMemory&) = delete;
  ~CallersMemory() { machine_.driver.freeForeign(matrix_.pointer); }

  const DeviceMatrix& matrix() const { return matrix_; }
  std::vector<double> numbers() const {
    return withZeroOf(matrix_.type, [&]<class T>(T) {
      const std::vector<std::byte> bytes = machine_.driver.readForeign(matrix_.pointer, count_ * sizeof(T));
      std::vector<T> numbers(count_);
      std::memcpy(numbers.data(), bytes.data(), bytes.size());
      return std::vector<double>(numbers.begin(), numbers.end());
    });
  }

 private:
  FakeMachine& machine_;
  std::size_t count_;
  DeviceMatrix matrix_;
};

class DeviceOutput : public testing::TestWithParam<Precision> {
 protected:
  EngineOptions strict(std::uint64_t device_bytes = 0) const {
    return {.precision = GetParam(), .math = Math::kStrict, .device_bytes = device_bytes};
  }
  std::vector<double> predictToDevice(FakeMachine& machine, const Engine& gpu, const Workload& w, Tier tier) const {
    const Dataset data = gpu.upload(w.view()).value();
    const CallersMemory memory(machine, w.expressions.size(), w.rows(), GetParam());
    const Program program = gpu.compile(w.expressions, {.tier = tier});
    const auto failures = gpu.evaluate(program, data, w.parameters, memory.matrix());
    EXPECT_TRUE(failures) << failures.error().message;
    return memory.numbers();
  }
};

TEST_P(DeviceOutput, HasTheBitsOfOutputOnTheHost) {
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine(strict());
  for (const std::size_t rows : {1, 130, 700}) {
    const Workload w = arithmeticWorkload(rows, 20, rows, GetParam());
    for (const Tier tier : {Tier::kInterpret, Tier::kDirect, Tier::kCompile}) {
      expectSameBits(predictToDevice(machine, gpu, w, tier), predict(gpu, w, tier), rows, "predictions");
    }
  }
}

TEST_P(DeviceOutput, OfChunksOfRowsIsTheSame) {
  FakeMachine machine({.lag = true, .eager_kernels = true});
  const Engine gpu = machine.engine(strict(300'000));
  const Workload w = arithmeticWorkload(5, 6, 3 * 4096 + 1777, GetParam());
  expectSameBits(predictToDevice(machine, gpu, w, Tier::kInterpret), predict(gpu, w, Tier::kInterpret), w.rows(),
                 "streamed");
}

TEST_P(DeviceOutput, OfFailedExpressionsIsNaN) {
  FakeMachine machine;
  const Engine gpu = machine.engine(strict());
  const std::vector<double> column = {1, 2, 3};
  const Dataset data = gpu.upload({.columns = {column}}).value();
  // The second has a column too few; of the third, no code can be made.
  const std::int32_t codes[] = {variableCode(0), variableCode(1), codeOf(Op::kAdd)};
  const std::int64_t offsets[] = {0, 1, 2, 3};
  const Program program = gpu.compile(PopulationView{codes, {}, offsets}).value();
  const CallersMemory memory(machine, 3, 3, GetParam());
  const auto failures = gpu.evaluate(program, data, {}, memory.matrix());
  ASSERT_TRUE(failures);
  EXPECT_EQ(failures->size(), 2U);
  const std::vector<double> numbers = memory.numbers();
  EXPECT_THAT(std::span(numbers).first(3), testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(std::span(numbers).last(6), testing::Each(testing::IsNan()));
}

TEST_P(DeviceOutput, OfJacobiansAndSeveralVectorsIsTheSame) {
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine(strict());
  const Workload w = arithmeticWorkload(7, 12, 300, GetParam());
  const Dataset data = gpu.upload(w.view()).value();
  const Program program = gpu.compile(w.expressions);
  for (const DerivativesBy by : {DerivativesBy::kParameters, DerivativesBy::kVariables}) {
    const std::vector<double> expected = jacobianOf(gpu, w, Tier::kAuto, by);
    const CallersMemory memory(machine, expected.size() / w.rows(), w.rows(), GetParam());
    ASSERT_TRUE(gpu.jacobian(program, data, w.parameters, memory.matrix(), 0, by));
    expectSameBits(memory.numbers(), expected, w.rows(), "jacobian");
  }
  const auto doubled = [](std::vector<double> numbers) {
    const std::vector<double> again = numbers;
    numbers.insert(numbers.end(), again.begin(), again.end());
    return numbers;
  };
  const std::vector<double> twice = doubled(w.parameters);
  const CallersMemory memory(machine, 2 * w.expressions.size(), w.rows(), GetParam());
  ASSERT_TRUE(gpu.evaluate(program, data, twice, memory.matrix()));
  expectSameBits(memory.numbers(), doubled(predict(gpu, program, data, w.parameters)), w.rows(), "two vectors");
}

INSTANTIATE_TEST_SUITE_P(Precisions, DeviceOutput, testing::ValuesIn(kPrecisions),
                         [](const auto& parameter) { return nameOf(parameter.param); });

TEST(DeviceOutputErrors, AreThoseOfItsMemory) {
  FakeMachine machine;
  const Engine gpu = machine.engine();
  const std::vector<double> column = {1, 2, 3};
  const Dataset data = gpu.upload({.columns = {column}}).value();
  const Program program = gpu.compile(std::vector{parse("x0", Language::kInfix).value()});
  const CallersMemory memory(machine, 1, 3, Precision::kF32);
  const auto messageOf = [&](const DeviceMatrix& matrix) {
    const auto failures = gpu.evaluate(program, data, {}, matrix);
    return failures ? std::string("written") : failures.error().message;
  };
  EXPECT_EQ(messageOf(memory.matrix()), "written");
  DeviceMatrix bad = memory.matrix();
  bad.columns = 2;
  bad.row_stride = 8;
  EXPECT_EQ(messageOf(bad), "output of 2 numbers, expected 1 expressions x 3 rows");
  bad = memory.matrix();
  bad.column_stride = 8;
  EXPECT_EQ(messageOf(bad), "output with strides of 12 and 8 bytes, expected adjacent numbers");
  bad = memory.matrix();
  bad.type = Precision::kF64;
  EXPECT_EQ(messageOf(bad), "output in f64, but the engine computes in f32");
  bad = memory.matrix();
  bad.pointer = 64;
  EXPECT_THAT(messageOf(bad), testing::StartsWith("output at 0x40, which is not memory of"));
  const Engine cpu = cpuEngine(Precision::kF32);
  const auto on_cpu = cpu.evaluate(cpu.compile(std::vector{parse("x0", Language::kInfix).value()}),
                                   cpu.upload({.columns = {column}}).value(), {}, memory.matrix());
  ASSERT_FALSE(on_cpu);
  EXPECT_EQ(on_cpu.error().code, Errc::kUnsupported);
}

// The caller's stream may still use the memory for its earlier contents.
TEST(DeviceOutputStream, IsWaitedFor) {
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine();
  const std::vector<double> column = {1, 2, 3};
  const Dataset data = gpu.upload({.columns = {column}}).value();
  const Program program = gpu.compile(std::vector{parse("x0", Language::kInfix).value()});
  const CallersMemory memory(machine, 1, 3, Precision::kF32);
  const auto cuda = Cuda::open(machine.driver.load().value(), 0).value();
  const CurrentContext current(*cuda);
  const Stream callers(cuda);
  callers.fill(memory.matrix().pointer, 0x7f, 12);
  ASSERT_TRUE(gpu.evaluate(program, data, {}, memory.matrix(), reinterpret_cast<std::uint64_t>(callers.get())));
  callers.synchronize();
  EXPECT_THAT(memory.numbers(), testing::ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace srjit
