// Rows, samples and other weights of data on a model of a GPU: the results of an upload of the same numbers, by copies
// on the device.
#include <optional>

#include <gmock/gmock.h>

#include "runtime/gpu/data.h"
#include "tests/generators/selections.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

/// A small workload of 5 columns.
Workload selectable(std::size_t rows, Precision precision, bool weighted) {
  Workload w = withShares(arithmeticWorkload(rows, 6, rows, precision));
  if (weighted) w.weights = otherWeights(rows);
  return w;
}

bool isStreamed(const Dataset& data) { return deviceDataOf(data.state()).isStreamed(); }

/// Bytes of the copies of rows in one direction ("in", "out", "inside") and how many there were.
struct Copied {
  std::size_t bytes = 0, calls = 0;
};
Copied copied(const FakeMachine& machine, std::string_view direction) {
  Copied sum;
  for (const FakeCall& call : machine.driver.calls()) {
    if (call.entry != "cuMemcpy2DAsync" || call.detail != direction) continue;
    sum.bytes += call.bytes;
    ++sum.calls;
  }
  return sum;
}

class DeviceSelections : public testing::TestWithParam<Precision> {
 protected:
  EngineOptions strict(std::uint64_t device_bytes = 0) const {
    return {.precision = GetParam(), .math = Math::kStrict, .device_bytes = device_bytes};
  }
  std::size_t element() const { return static_cast<std::size_t>(bytesOf(GetParam())); }
  /// Numbers in device memory of a caller, and a view of them.
  DeviceMatrix foreign(FakeMachine& machine, const std::vector<double>& numbers) const {
    return withZeroOf(GetParam(), [&]<class T>(T) {
      const std::vector<T> converted(numbers.begin(), numbers.end());
      return DeviceMatrix{.pointer = machine.driver.allocateForeign(std::as_bytes(std::span(converted))),
                          .rows = numbers.size(),
                          .columns = 1,
                          .row_stride = sizeof(T),
                          .column_stride = static_cast<std::ptrdiff_t>(numbers.size() * sizeof(T)),
                          .type = GetParam()};
    });
  }
};

/// The bytes of all fields of resident data, with the rows that kernels read: up to a multiple of 4.
std::vector<std::byte> memoryOf(const FakeMachine& machine, const Dataset& data) {
  const Dataset::State& state = data.state();
  const auto element = static_cast<std::size_t>(bytesOf(state.precision));
  const auto cuda = Cuda::open(machine.driver.load().value(), 0).value();
  const CurrentContext current(*cuda);
  const Stream stream(cuda);
  const std::size_t bytes = roundUp(state.rows, 4) * element;
  std::vector<std::byte> memory(state.fields() * bytes);
  stream.copyRows({memory.data(), bytes}, {deviceDataOf(state).layout().columns, state.column_stride * element}, bytes,
                  state.fields());
  stream.synchronize();
  return memory;
}

// Padding, too: results do not show it.
TEST_P(DeviceSelections, MemoryIsThatOfAnUpload) {
  constexpr std::size_t kRows = 700;
  for (const bool weighted : {false, true}) {
    FakeMachine machine({.lag = true});
    const Engine gpu = machine.engine(strict());
    Workload w = selectable(kRows, GetParam(), weighted);
    const Dataset data = gpu.upload(w.view()).value();
    for (const RowRun& range : {RowRun{0, kRows}, RowRun{1, 5}, RowRun{1, 6}, RowRun{1, 7}, RowRun{99, 440}}) {
      const Dataset expected = gpu.upload(rowsOf(w, {range}).view()).value();
      EXPECT_EQ(memoryOf(machine, gpu.rows(data, range.first, range.count).value()), memoryOf(machine, expected));
    }
    const Dataset some = gpu.rows(data, 1, 333).value();
    w = rowsOf(w, {{1, 333}});
    w.weights = otherWeights(333);
    EXPECT_EQ(memoryOf(machine, gpu.withWeights(some, w.weights).value()),
              memoryOf(machine, gpu.upload(w.view()).value()));
  }
}

// One copy for each run of adjacent groups, and one of target and weights to the host.
TEST_P(DeviceSelections, ColumnsStayOnTheDevice) {
  constexpr std::size_t kRows = 100 * kGroupRows;
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine(strict());
  const Dataset data = gpu.upload(selectable(kRows, GetParam(), true).view()).value();
  machine.driver.forgetCalls();
  ASSERT_TRUE(gpu.sample(data, 20, 5).ok());
  const Copied inside = copied(machine, "inside"), out = copied(machine, "out");
  EXPECT_EQ(inside.calls, sampleGroups(kRows, 20, 5).size());
  EXPECT_EQ(inside.bytes, 20 * kGroupRows * 7 * element());
  EXPECT_EQ(out.calls, 1U);
  EXPECT_EQ(out.bytes, 20 * kGroupRows * 2 * element());
  for (const char* const other : {"cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuMemsetD8Async"}) {
    EXPECT_EQ(machine.driver.count(other), 0U) << other;
  }
  EXPECT_EQ(copied(machine, "in").calls, 0U);
}

TEST_P(DeviceSelections, WeightsOnTheDeviceAreReadAfterTheirWriter) {
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine(strict());
  Workload w = selectable(200, GetParam(), false);
  const Dataset data = gpu.upload(w.view()).value();
  const DeviceMatrix zeros = foreign(machine, std::vector<double>(200, 0.0));
  EXPECT_EQ(gpu.withWeights(data, zeros).error().message, "the weights are all zero");
  const auto cuda = Cuda::open(machine.driver.load().value(), 0).value();
  const CurrentContext current(*cuda);
  const Stream writer(cuda);
  w.weights = otherWeights(200);
  withZeroOf(GetParam(), [&]<class T>(T) {
    const std::vector<T> weights(w.weights.begin(), w.weights.end());
    writer.copyToDevice(zeros.pointer, weights.data(), weights.size() * sizeof(T));
  });
  const Dataset other = gpu.withWeights(data, zeros, reinterpret_cast<std::uint64_t>(writer.get())).value();
  expectSameResults(gpu, other, gpu.upload(w.view()).value(), w);
}

TEST_P(DeviceSelections, OfStreamedDataAreResidentIfTheyFit) {
  constexpr std::size_t kRows = 3 * 4096 + 1777;
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine(strict(40'000 * element()));
  Workload w = withShares(arithmeticWorkload(5, 3, kRows, GetParam(), true));
  std::optional<Dataset> data = gpu.upload(w.view()).value();
  ASSERT_TRUE(isStreamed(*data));
  const Dataset small = gpu.sample(*data, 10, 3).value();
  EXPECT_FALSE(isStreamed(small));
  machine.driver.forgetCalls();
  const Dataset large = gpu.rows(*data, 1000, 11'111).value();
  EXPECT_TRUE(isStreamed(large));
  EXPECT_EQ(copied(machine, "in").calls, 0U) << "from the host to the host";
  Workload heavy = w;
  heavy.weights = otherWeights(kRows);
  const Dataset weighted = gpu.withWeights(*data, heavy.weights).value();
  EXPECT_TRUE(isStreamed(weighted));
  const Dataset part = gpu.rows(*data, 7, 1001).value();
  EXPECT_FALSE(isStreamed(part));
  data.reset();
  expectSameResults(gpu, small, gpu.upload(rowsOf(w, sampleGroups(kRows, 10, 3)).view()).value(), w);
  expectSameResults(gpu, large, gpu.upload(rowsOf(w, {{1000, 11'111}}).view()).value(), w);
  expectSameResults(gpu, weighted, gpu.upload(heavy.view()).value(), w);
  expectSameResults(gpu, part, gpu.upload(rowsOf(w, {{7, 1001}}).view()).value(), w);
}

// The device has room for the data, but not for a copy.
TEST_P(DeviceSelections, OfResidentDataAreStreamedIfTheyDoNotFit) {
  constexpr std::size_t kRows = 9001;
  FakeMachine machine({.devices = {FakeDevice{.memory_bytes = 130'000 * element()}}, .lag = true});
  const Engine gpu = machine.engine(strict());
  const Workload w = withShares(arithmeticWorkload(5, 3, kRows, GetParam(), true));
  std::optional<Dataset> data = gpu.upload(w.view()).value();
  ASSERT_FALSE(isStreamed(*data));
  const Dataset most = gpu.rows(*data, 500, 8'501).value();
  EXPECT_TRUE(isStreamed(most));
  data.reset();
  const Engine cpu = cpuEngine(GetParam());
  const Program program = gpu.compile(w.expressions, {.tier = Tier::kInterpret});
  expectSameLosses(gpu.loss(program, most, w.parameters).value(),
                   lossesOf(cpu, rowsOf(w, {{500, 8'501}}), Tier::kInterpret, {}), "streamed");
}

TEST_P(DeviceSelections, OfColumnsThatAreLongerThanAPitch) {
  FakeMachine machine({.devices = {FakeDevice{.max_pitch = 1'000}}, .lag = true});
  const Engine gpu = machine.engine(strict());
  const Workload w = selectable(900, GetParam(), true);
  const Dataset data = gpu.upload(w.view()).value();
  const Dataset some = gpu.rows(data, 13, 700).value();
  EXPECT_EQ(copied(machine, "inside").calls, 0U);
  expectSameResults(gpu, some, gpu.upload(rowsOf(w, {{13, 700}}).view()).value(), w);
}

TEST_P(DeviceSelections, OfAnotherEnginesData) {
  FakeMachine machine({.lag = true});
  const Workload w = withShares(arithmeticWorkload(5, 3, 3 * 4096, GetParam(), true));
  std::optional<Engine> first = machine.engine(strict()), streaming = machine.engine(strict(40'000 * element()));
  std::optional<Dataset> resident = first->upload(w.view()).value(), streamed = streaming->upload(w.view()).value();
  ASSERT_TRUE(isStreamed(*streamed));
  const Engine gpu = machine.engine(strict());
  const Dataset a = gpu.rows(*resident, 10, 1000).value(), b = gpu.rows(*streamed, 10, 1000).value();
  resident.reset(), streamed.reset(), first.reset(), streaming.reset();
  const Dataset expected = gpu.upload(rowsOf(w, {{10, 1000}}).view()).value();
  expectSameResults(gpu, a, expected, w);
  expectSameResults(gpu, b, expected, w);
  const Dataset on_cpu = cpuEngine(GetParam()).upload(w.view()).value();
  EXPECT_EQ(gpu.rows(on_cpu, 0, 1).error().message, "data on cpu, but the engine's device is cuda:0");
}

TEST_P(DeviceSelections, HaveSpareColumnsForSubtrees) {
  FakeMachine machine;
  EngineOptions options = strict();
  options.subtree_bytes = 1'000'000;
  const Engine gpu = machine.engine(options);
  const Workload w = selectable(700, GetParam(), true);
  const Dataset data = gpu.upload(w.view()).value();
  const Dataset some = gpu.rows(data, 100, 300).value(), expected = gpu.upload(rowsOf(w, {{100, 300}}).view()).value();
  EXPECT_GT(expected.subtrees().capacity, 0U);
  EXPECT_EQ(some.subtrees().capacity, expected.subtrees().capacity);
  const Program program = gpu.compile(w.expressions, {.data = &some});
  expectSameBits(predict(gpu, program, some, w.parameters),
                 predict(gpu, gpu.compile(w.expressions), expected, w.parameters), 300, "predictions");
  EXPECT_EQ(gpu.loss(program, data, w.parameters).error().code, Errc::kInvalid) << "a program for one data set";
}

// Only in f32, since the model takes seconds for the self-test of direct code.
TEST(FasterCode, OnSelectedRowsGivesTheBitsOfAnUpload) {
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Workload w = selectable(700, Precision::kF32, true);
  const Dataset some = gpu.rows(gpu.upload(w.view()).value(), 67, 301).value();
  const Dataset expected = gpu.upload(rowsOf(w, {{67, 301}}).view()).value();
  for (const Tier tier : {Tier::kDirect, Tier::kCompile}) {
    const Program program = gpu.compile(w.expressions, {.tier = tier});
    expectSameLosses(gpu.loss(program, some, w.parameters).value(), gpu.loss(program, expected, w.parameters).value(),
                     "faster code");
    expectSameBits(predict(gpu, program, some, w.parameters), predict(gpu, program, expected, w.parameters), 301,
                   "faster code");
  }
}

INSTANTIATE_TEST_SUITE_P(, DeviceSelections, testing::Values(Precision::kF32, Precision::kF64));

/// The same rows, sample and weights of data that are resident or streamed.
class FailingSelections : public testing::TestWithParam<std::uint64_t> {
 protected:
  static constexpr std::size_t kRows = 4500;
  using Make = std::function<Result<Dataset>(const Engine& engine, const Dataset& data)>;

  const Workload w_ = selectable(kRows, Precision::kF32, true);
  const std::vector<double> weights_ = otherWeights(kRows);
};

INSTANTIATE_TEST_SUITE_P(, FailingSelections, testing::Values(0, 80'000),
                         [](const auto& tested) { return tested.param == 0 ? "Resident" : "Streamed"; });

// Each call of the driver fails once. Nothing is lost or left running: the data are freed at once, or used again.
TEST_P(FailingSelections, GiveAnErrorAndLoseNothing) {
  const std::vector<Make> makes = {
      [](const Engine& e, const Dataset& d) { return e.rows(d, 5, 1001); },
      [](const Engine& e, const Dataset& d) { return e.rows(d, 5, kRows - 6); },
      [](const Engine& e, const Dataset& d) { return e.sample(d, 9, 2); },
      [&](const Engine& e, const Dataset& d) { return e.withWeights(d, weights_); },
  };
  std::size_t failures = 0;
  for (const Make& make : makes) {
    for (const char* const entry :
         {"cuMemGetInfo", "cuMemPoolGetAttribute", "cuMemAllocFromPoolAsync", "cuMemHostRegister", "cuMemcpyHtoDAsync",
          "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuMemcpy2DAsync", "cuMemsetD8Async", "cuEventCreate",
          "cuEventRecord", "cuStreamSynchronize", "cuCtxGetCurrent", "cuCtxSetCurrent"}) {
      for (std::size_t n = 1; n < 60; ++n) {
        FakeMachine machine({.lag = true});
        const Engine gpu = machine.engine({.math = Math::kStrict, .device_bytes = GetParam()});
        std::optional<Dataset> data = gpu.upload(w_.view()).value();
        ASSERT_EQ(isStreamed(*data), GetParam() != 0);
        const std::size_t used = machine.driver.usedBytes();
        machine.driver.forgetCalls();
        machine.driver.failAt(entry, n, CUDA_ERROR_LAUNCH_FAILED);
        const Result<Dataset> made = make(gpu, *data);
        if (machine.driver.count(entry) < n) {
          EXPECT_TRUE(made.ok()) << entry << " " << n;
          break;
        }
        if (made.ok()) continue;  // a destructor's call, which reports nothing
        ++failures;
        EXPECT_EQ(made.error().code, Errc::kMachine);
        EXPECT_THAT(made.error().message, testing::HasSubstr(entry));
        EXPECT_EQ(machine.driver.usedBytes(), used) << entry << " " << n;
        if (n % 2 == 0) {
          data.reset();
        } else {
          EXPECT_TRUE(make(gpu, *data).ok());
        }
      }
    }
  }
  EXPECT_GT(failures, 20U);
}

// Without memory for a copy on the device, after all that is idle was freed, rows are streamed.
TEST(SelectionsWithoutMemory, AreStreamedWithoutMemory) {
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Workload w = selectable(700, Precision::kF32, true);
  const Dataset data = gpu.upload(w.view()).value();
  machine.driver.failAt("cuMemAllocFromPoolAsync", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(isStreamed(gpu.rows(data, 9, 500).value())) << "tried a second time";
  machine.driver.failAt("cuMemAllocFromPoolAsync", 1, CUDA_ERROR_OUT_OF_MEMORY);
  machine.driver.failAt("cuMemAllocFromPoolAsync", 2, CUDA_ERROR_OUT_OF_MEMORY);
  const Dataset some = gpu.rows(data, 9, 500).value();
  EXPECT_TRUE(isStreamed(some));
  expectSameResults(gpu, some, gpu.upload(rowsOf(w, {{9, 500}}).view()).value(), w);
  for (std::size_t n = 1; n <= 4; ++n) {
    machine.driver.failAt("cuMemAllocFromPoolAsync", n, CUDA_ERROR_OUT_OF_MEMORY);
  }
  const Result<Dataset> none = gpu.rows(data, 9, 500);
  ASSERT_FALSE(none.ok()) << "nor is there memory for the chunks";
  EXPECT_EQ(none.error().code, Errc::kMachine);
  EXPECT_THAT(none.error().message, testing::HasSubstr("out of device memory"));
  EXPECT_TRUE(gpu.rows(data, 9, 500).ok());
}

}  // namespace
}  // namespace srjit
