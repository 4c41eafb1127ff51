// Columns, weights and results in a caller's memory of a GPU: of the only one, of one of several, and beside streams.
#include <gmock/gmock.h>

#include "runtime/cuda/handles.h"
#include "runtime/gpu/data.h"
#include "runtime/pool/program.h"
#include "tests/generators/selections.h"
#include "tests/runtime/machines/fixture.h"

namespace srjit {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

/// Numbers of the caller on a device.
class CallersMemory {
 public:
  CallersMemory(const Machine& machine, int device, const std::vector<double>& numbers)
      : machine_(machine), count_(numbers.size()) {
    withZeroOf(machine.precision, [&]<class T>(T) {
      const std::vector<T> image(numbers.begin(), numbers.end());
      pointer_ = machine.model->driver.allocateForeign(std::as_bytes(std::span(image)), device);
    });
  }
  CallersMemory(const CallersMemory&) = delete;
  CallersMemory& operator=(const CallersMemory&) = delete;
  ~CallersMemory() { machine_.model->driver.freeForeign(pointer_); }

  /// A matrix whose first number is at `offset`; strides are in numbers.
  DeviceMatrix matrix(std::size_t rows, std::size_t columns, std::ptrdiff_t row_stride, std::ptrdiff_t column_stride,
                      std::ptrdiff_t offset = 0) const {
    const std::ptrdiff_t bytes = bytesOf(machine_.precision);
    return {.pointer = pointer_ + static_cast<std::uint64_t>(offset * bytes),
            .rows = rows,
            .columns = columns,
            .row_stride = row_stride * bytes,
            .column_stride = column_stride * bytes,
            .type = machine_.precision};
  }
  DeviceMatrix column() const { return matrix(count_, 1, 1, static_cast<std::ptrdiff_t>(count_)); }
  /// Of `rows` results each.
  DeviceMatrix output(std::size_t rows) const {
    return matrix(count_ / rows, rows, static_cast<std::ptrdiff_t>(rows), 1);
  }
  std::vector<double> numbers() const {
    return withZeroOf(machine_.precision, [&]<class T>(T) {
      const std::vector<std::byte> bytes = machine_.model->driver.readForeign(pointer_, count_ * sizeof(T));
      std::vector<T> numbers(count_);
      std::memcpy(numbers.data(), bytes.data(), bytes.size());
      return std::vector<double>(numbers.begin(), numbers.end());
    });
  }

 private:
  const Machine& machine_;
  std::size_t count_;
  std::uint64_t pointer_ = 0;
};

std::vector<double> unwritten(std::size_t count) { return std::vector<double>(count, 12345); }

class MachineMemory : public Machines {
 protected:
  /// Devices that memory is on: the first and the last.
  std::vector<int> owners() const {
    return machine_.kind.gpus == 1 ? std::vector{0} : std::vector{0, static_cast<int>(machine_.kind.gpus) - 1};
  }
  /// Expects the results of uploads of rows and samples of `data`, which are of `w`, and with other weights.
  void expectParts(const Dataset& data, const Workload& w) const {
    const std::vector<RowRun> runs[] = {{{0, w.rows()}}, {{99, 3}}, {{3, 290}}, sampleGroups(w.rows(), 2, 1)};
    const Dataset parts[] = {engine_.rows(data, 0, w.rows()).value(), engine_.rows(data, 99, 3).value(),
                             engine_.rows(data, 3, 290).value(), engine_.sample(data, 2, 1).value()};
    for (std::size_t i = 0; i < std::size(parts); ++i) {
      expectSameResults(engine_, parts[i], engine_.upload(rowsOf(w, runs[i]).view()).value(), w);
      EXPECT_TRUE(machine_.kind.gpus > 1 || !deviceDataOf(parts[i].state()).isStrided());
    }
    Workload heavy = w;
    heavy.weights = otherWeights(w.rows());
    heavy.weights[3] += 1;
    expectSameResults(engine_, engine_.withWeights(data, heavy.weights).value(), engine_.upload(heavy.view()).value(),
                      w);
  }
  const Engine engine_ = machine_.engine();
};

INSTANTIATE_TEST_SUITE_P(Resident, MachineMemory, inSingle(kOneGpu, kThreeGpus), nameOfMachine);
INSTANTIATE_TEST_SUITE_P(InDouble, MachineMemory, inDouble(kOneGpu, kTwoGpus), nameOfMachine);
INSTANTIATE_TEST_SUITE_P(Streaming, MachineMemory, inSingle(kStreamingGpu, kStreamingGpus), nameOfMachine);

TEST_P(MachineMemory, HasTheBitsOfOutputOnTheHost) {
  for (const std::size_t rows : {std::size_t{1}, std::size_t{130}, rowsOr(700)}) {
    const Workload w = workload(rows, 20, rows);
    const std::size_t count = w.expressions.size();
    const std::vector<double> expected = predict(cpu_, w, Tier::kInterpret);
    const Dataset data = engine_.upload(w.view()).value();
    for (const int owner : owners()) {
      for (const Tier tier : machine_.tiers()) {
        const CallersMemory memory(machine_, owner, unwritten(count * rows));
        const Program program = engine_.compile(w.expressions, {.tier = tier});
        const auto failures = engine_.evaluate(program, data, w.parameters, memory.output(rows));
        ASSERT_TRUE(failures) << failures.error().message;
        expectSameBits(memory.numbers(), expected, rows, nameOf(tier));
        expectServed(program, tier);
      }
    }
  }
}

// Of three expressions, the second has a column too few, and no code can be made of the third.
TEST_P(MachineMemory, HasNaNOfFailedExpressions) {
  const std::vector<double> column = {1, 2, 3};
  const Dataset data = engine_.upload({.columns = {column}}).value();
  const std::int32_t codes[] = {variableCode(0), variableCode(1), codeOf(Op::kAdd)};
  const std::int64_t offsets[] = {0, 1, 2, 3};
  const Program program = engine_.compile(PopulationView{codes, {}, offsets}).value();
  for (const int owner : owners()) {
    const CallersMemory memory(machine_, owner, unwritten(9));
    const auto failures = engine_.evaluate(program, data, {}, memory.output(3)).value();
    ASSERT_EQ(failures.size(), 2U);
    EXPECT_EQ(failures[0].expression, 1U);
    const std::vector<double> numbers = memory.numbers();
    EXPECT_THAT(std::span(numbers).first(3), ElementsAre(1, 2, 3));
    EXPECT_THAT(std::span(numbers).last(6), testing::Each(testing::IsNan()));
  }
}

TEST_P(MachineMemory, TakesJacobiansAndSeveralVectors) {
  const Workload w = workload(7, 12, rowsOr(300));
  const auto [data, program] = prepared(engine_, w, {.tier = Tier::kInterpret});
  for (const DerivativesBy by : {DerivativesBy::kParameters, DerivativesBy::kVariables}) {
    const std::vector<double> expected = jacobianOf(cpu_, w, Tier::kInterpret, by);
    const CallersMemory memory(machine_, owners().back(), unwritten(expected.size()));
    ASSERT_TRUE(engine_.jacobian(program, data, w.parameters, memory.output(w.rows()), 0, by));
    expectSameBits(memory.numbers(), expected, w.rows(), "jacobian");
  }
  const auto doubled = [](std::vector<double> numbers) {
    const std::vector<double> again = numbers;
    numbers.insert(numbers.end(), again.begin(), again.end());
    return numbers;
  };
  const CallersMemory memory(machine_, owners().back(), unwritten(2 * w.expressions.size() * w.rows()));
  ASSERT_TRUE(engine_.evaluate(program, data, doubled(w.parameters), memory.output(w.rows())));
  expectSameBits(memory.numbers(), doubled(predict(cpu_, w, Tier::kInterpret)), w.rows(), "two vectors");
}

// The caller's stream may still use the memory for earlier results.
TEST_P(MachineMemory, IsWrittenAfterTheCallersStream) {
  const std::vector<double> column = {1, 2, 3};
  const Dataset data = engine_.upload({.columns = {column}}).value();
  const Program program = engine_.compile(std::vector{build({Token::variable(0)})});
  const CallersMemory memory(machine_, 0, unwritten(3));
  const auto cuda = Cuda::open(machine_.model->driver.load().value(), 0).value();
  const CurrentContext current(*cuda);
  const Stream callers(cuda);
  callers.fill(memory.output(3).pointer, 0x7f, 3 * static_cast<std::size_t>(bytesOf(machine_.precision)));
  ASSERT_TRUE(engine_.evaluate(program, data, {}, memory.output(3), reinterpret_cast<std::uint64_t>(callers.get())));
  callers.synchronize();
  EXPECT_THAT(memory.numbers(), ElementsAre(1, 2, 3));
}

TEST_P(MachineMemory, IsRefusedIfItDoesNotFit) {
  const std::vector<double> column = {1, 2, 3};
  const Dataset data = engine_.upload({.columns = {column}}).value();
  const std::vector<Expression> one = {build({Token::variable(0)})};
  const CallersMemory memory(machine_, 0, unwritten(6));
  const auto messageOf = [&](const DeviceMatrix& matrix) {
    const auto failures = engine_.evaluate(engine_.compile(one), data, {}, matrix);
    return failures ? std::string("written") : failures.error().message;
  };
  const DeviceMatrix good = memory.matrix(1, 3, 3, 1);
  EXPECT_EQ(messageOf(good), "written");
  EXPECT_EQ(messageOf(memory.matrix(1, 2, 2, 1)), "output of 2 numbers, expected 1 expressions x 3 rows");
  DeviceMatrix bad = memory.matrix(1, 3, 3, 2);
  EXPECT_EQ(messageOf(bad), fmt::format("output with strides of {} and {} bytes, expected adjacent numbers",
                                        bad.row_stride, bad.column_stride));
  bad = good;
  bad.type = good.type == Precision::kF32 ? Precision::kF64 : Precision::kF32;
  EXPECT_EQ(messageOf(bad),
            fmt::format("output in {}, but the engine computes in {}", nameOf(bad.type), nameOf(good.type)));
  bad = good;
  bad.pointer = 64;
  EXPECT_THAT(messageOf(bad), StartsWith("output at 0x40, which is not memory of"));
  const auto on_cpu = cpu_.evaluate(cpu_.compile(one), cpu_.upload({.columns = {column}}).value(), {}, good);
  ASSERT_FALSE(on_cpu);
  EXPECT_EQ(on_cpu.error().code, Errc::kUnsupported);
}

/// How the columns of a caller lie in memory, in numbers.
struct CallersLayout {
  const char* name;
  std::ptrdiff_t offset, row_stride, column_stride;
};

// Twice a gradient, since target and weights are not behind adopted columns: the first copies the data.
TEST_P(MachineMemory, IsReadInAnyLayout) {
  if (machine_.isStreaming()) GTEST_SKIP() << "adopted data are not streamed";
  constexpr std::ptrdiff_t kRows = 301, kColumns = 5;
  const Workload w = withShares(workload(8, 10, kRows));
  const Losses expected = lossesOf(cpu_, w, Tier::kInterpret, {});
  const std::vector<double> predictions = predict(cpu_, w, Tier::kInterpret);
  const Gradients gradients = gradientsOf(cpu_, w, Tier::kInterpret, {});
  for (const CallersLayout& placed :
       {CallersLayout{"contiguous", 0, 1, kRows}, CallersLayout{"with gaps", 8, 1, kRows + 36},
        CallersLayout{"by rows", 0, kColumns, 1}, CallersLayout{"every third", 1, 3, 3 * kRows},
        CallersLayout{"backwards", kRows - 1, -1, kRows},
        CallersLayout{"from the last column", 4 * kRows, 1, -kRows}}) {
    SCOPED_TRACE(placed.name);
    std::vector<double> numbers(5000, std::nan("")), twice;
    for (std::ptrdiff_t c = 0; c < kColumns; ++c) {
      for (std::ptrdiff_t r = 0; r < kRows; ++r) {
        numbers[static_cast<std::size_t>(placed.offset + r * placed.row_stride + c * placed.column_stride)] =
            w.columns[static_cast<std::size_t>(c)][static_cast<std::size_t>(r)];
      }
    }
    for (const double target : w.target) twice.insert(twice.end(), {target, 0});
    for (const int owner : owners()) {
      const CallersMemory columns(machine_, owner, numbers), target(machine_, owner, twice),
          weights(machine_, owner, w.weights);
      const std::size_t before = machine_.model->driver.usedBytes();
      const Dataset data = engine_
                               .adopt({.columns = columns.matrix(kRows, kColumns, placed.row_stride,
                                                                 placed.column_stride, placed.offset),
                                       .target = target.matrix(kRows, 1, 2, 0),
                                       .weights = weights.column()})
                               .value();
      EXPECT_EQ(data.rows(), static_cast<std::size_t>(kRows));
      if (machine_.kind.gpus == 1) {
        EXPECT_LT(machine_.model->driver.usedBytes() - before,
                  3 * kRows * static_cast<std::size_t>(bytesOf(machine_.precision)))
            << "columns are not copied";
      }
      if (owner == owners().back() && (machine_.kind.gpus == 1 || placed.offset == 0)) expectParts(data, w);
      for (const Tier tier : machine_.tiers()) {
        const Program program = engine_.compile(w.expressions, {.tier = tier});
        expectSameLosses(engine_.loss(program, data, w.parameters).value(), expected, "adopted");
        expectSameBits(predict(engine_, program, data, w.parameters), predictions, kRows, "adopted");
        for (int i = 0; i < 2; ++i) {
          expectSameGradients(engine_.gradient(program, data, w.parameters).value(), gradients, "adopted");
        }
      }
    }
  }
}

// If a device once lacks memory for a copy of the target beside adopted columns, a later call makes the copy.
TEST_P(MachineMemory, ACopyThatFailsOnceIsMadeLater) {
  if (machine_.kind.gpus == 1 || machine_.isStreaming()) GTEST_SKIP() << "no other device needs a copy";
  const Workload w = workload(3, 20, 301, false);
  std::vector<double> numbers;
  for (const auto& column : w.columns) numbers.insert(numbers.end(), column.begin(), column.end());
  const Program program = engine_.compile(w.expressions);
  const Gradients expected = gradientsOf(cpu_, w, Tier::kInterpret, {});
  for (const int owner : owners()) {
    const CallersMemory columns(machine_, owner, numbers), target(machine_, owner, w.target);
    std::size_t missed = 0;
    for (const std::size_t n : {1, 2, 3, 4}) {
      const Dataset data =
          engine_.adopt({.columns = columns.matrix(301, w.columns.size(), 1, 301), .target = target.column()}).value();
      machine_.model->driver.failAt("", n, CUDA_ERROR_OUT_OF_MEMORY, owner);
      expectSameGradients(engine_.gradient(program, data, w.parameters).value(), expected, "without one");
      machine_.model->driver.forgetFailures();
      missed += data.state().copy_with_target == nullptr ? 1 : 0;
      expectSameGradients(engine_.gradient(program, data, w.parameters).value(), expected, "with all");
      ASSERT_NE(data.state().copy_with_target, nullptr);
      EXPECT_THAT(replicasOf(*data.state().copy_with_target), testing::Each(testing::NotNull()));
    }
    EXPECT_GT(missed, 0U);
  }
}

TEST_P(MachineMemory, HasWeights) {
  Workload w = workload(7, 10, 200);
  Workload without = w;
  without.weights.clear();
  const Dataset data = engine_.upload(without.view()).value();
  const Program program = engine_.compile(w.expressions, {.tier = Tier::kInterpret});
  std::vector<double> spread(600);
  for (std::size_t r = 0; r < 200; ++r) spread[3 * r] = w.weights[r];
  for (const int owner : owners()) {
    const CallersMemory adjacent(machine_, owner, w.weights), strided(machine_, owner, spread),
        zeros(machine_, owner, std::vector<double>(200));
    for (const DeviceMatrix& weights : {adjacent.column(), strided.matrix(200, 1, 3, 600)}) {
      expectSameLosses(engine_.loss(program, engine_.withWeights(data, weights).value(), w.parameters).value(),
                       lossesOf(cpu_, w, Tier::kInterpret, {}), "weights of a device");
    }
    EXPECT_EQ(engine_.withWeights(data, zeros.column()).error().message, "the weights are all zero");
    const Dataset open = engine_.upload({.columns = w.view().columns}).value();
    EXPECT_EQ(engine_.withWeights(open, adjacent.column()).error().message, "weights without a target");
  }
}

TEST(MachineMemoryOfAnotherDevice, IsRefused) {
  const Machine machine(kThreeGpus, Precision::kF32);
  const Engine some = machine.model->engine({.device = "cuda:0,2", .math = Math::kStrict});
  const CallersMemory columns(machine, 1, unwritten(20));
  const Result<Dataset> data = some.adopt({.columns = columns.column()});
  ASSERT_FALSE(data.ok());
  EXPECT_EQ(data.error().code, Errc::kUnsupported);
  EXPECT_THAT(data.error().message, testing::EndsWith("which is not memory of a device of cuda:0,2"));
}

}  // namespace
}  // namespace srjit
