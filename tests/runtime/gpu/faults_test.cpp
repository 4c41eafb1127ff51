// Failures of the driver, of devices and of compiling become Errors, without leaks.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>

#include "tests/generators/token_arrays.h"
#include "tests/gpu_model/device_engine.h"
#include "tests/runtime/cache/images.h"

namespace srjit {
namespace {

TEST(DeviceFaults, WithoutADriverAutoIsTheCpu) {
  EngineParts parts{.driver =
                        [] {
                          return Result<std::shared_ptr<const Driver>>(
                              Error{Errc::kMachine, "no CUDA driver: libcuda.so.1 was not found", {}});
                        },
                    .images = std::make_shared<FakeImageMaker>()};
  const Result<Engine> engine = createEngine({.threads = 2}, parts);
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ(engine->options().device, "cpu");
  const Result<Engine> forced = createEngine({.device = "cuda:0", .threads = 2}, parts);
  ASSERT_FALSE(forced.ok());
  EXPECT_EQ(forced.error().code, Errc::kMachine);
  EXPECT_EQ(forced.error().message, "device cuda:0: no CUDA driver: libcuda.so.1 was not found");
}

TEST(DeviceFaults, MissingDevice) {
  FakeMachine machine;
  const Result<Engine> engine = machine.tryEngine({.device = "cuda:3"});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, Errc::kMachine);
  EXPECT_EQ(engine.error().message, "device cuda:3, but this machine has 1 device");
}

TEST(DeviceFaults, OldDriverErrorNamesTheMissingEntry) {
  FakeMachine machine({.version = 11000});
  const Result<Engine> engine = machine.tryEngine();
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, Errc::kMachine);
  EXPECT_NE(engine.error().message.find("the CUDA driver lacks cu"), std::string::npos) << engine.error().message;
}

struct Storing {
  const char* name;
  std::uint64_t device_bytes;
  std::size_t rows, expressions;
};

constexpr const char* kFailingEntries =
    "cuDevicePrimaryCtxRetain cuMemPoolCreate cuMemPoolSetAttribute cuMemPoolGetAttribute cuMemGetInfo "
    "cuMemAllocFromPoolAsync cuMemHostAlloc cuMemHostRegister cuPointerGetAttribute cuMemcpyHtoDAsync "
    "cuMemcpyDtoHAsync cuMemcpy2DAsync cuMemsetD8Async cuModuleLoadDataEx cuModuleGetFunction cuFuncGetAttribute "
    "cuFuncSetAttribute cuLaunchKernel cuGraphCreate cuGraphAddKernelNode cuGraphInstantiateWithFlags cuGraphLaunch "
    "cuEventCreate cuEventRecord cuEventQuery cuEventSynchronize cuEventElapsedTime cuStreamCreate cuStreamWaitEvent "
    "cuStreamSynchronize cuCtxGetCurrent cuCtxSetCurrent";

class EveryCall : public testing::TestWithParam<Storing> {
 protected:
  /// An engine, a data set, and predictions and losses by two tiers; predictions are compared with `expected`. Then
  /// losses of the population in parts.
  static Status useOnce(FakeMachine& machine, const Workload& w, const std::vector<double>& expected,
                        const std::string& entry) {
    const Result<Engine> gpu = machine.tryEngine({.math = Math::kStrict, .device_bytes = GetParam().device_bytes});
    if (!gpu) return gpu.error();
    const Result<Dataset> data = gpu->upload(w.view());
    if (!data) return data.error();
    for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
      const Program program = gpu->compile(w.expressions, {.tier = tier});
      if (!program.failures().empty()) return program.failures()[0].error;
      const Result<Losses> losses = gpu->loss(program, *data, w.parameters);
      if (!losses) return losses.error();
      std::vector<float> out(w.expressions.size() * w.rows());
      const auto predicted = gpu->evaluate(program, *data, w.parameters, std::span<float>(out));
      if (!predicted) return predicted.error();
      expectSameBits(std::vector<double>(out.begin(), out.end()), expected, w.rows(), entry);
      if (tier == Tier::kCompile) continue;
      const Result<Gradients> gradients = gpu->gradient(program, *data, w.parameters);
      if (!gradients) return gradients.error();
      if (!gradients->losses.failures.empty()) return gradients->losses.failures[0].error;
      expectSameBits(gradients->losses.values, losses->values, 1, entry);
      const TokenArrays arrays = tokensOf(w.expressions);
      const Result<Losses> in_parts = gpu->loss(arrays.view(), *data, w.parameters, {}, {.tier = tier});
      if (!in_parts) return in_parts.error();
      if (!in_parts->failures.empty()) return in_parts->failures[0].error;
      expectSameBits(in_parts->values, losses->values, 1, entry);
    }
    return okStatus();
  }
};

INSTANTIATE_TEST_SUITE_P(, EveryCall, testing::Values(Storing{"Resident", 0, 300, 20}, Storing{"Streamed", 1, 4300, 4}),
                         [](const auto& tested) { return std::string(tested.param.name); });

/// Every call of the driver fails once, one after another: each time an Error, and afterwards the engine works.
TEST_P(EveryCall, MayFailOnce) {
  const Workload w = arithmeticWorkload(31, GetParam().expressions, GetParam().rows, Precision::kF32);
  const std::vector<double> expected = predict(cpuEngine(Precision::kF32), w, Tier::kInterpret);
  std::size_t failures = 0;
  std::istringstream entries(kFailingEntries);
  for (std::string entry; entries >> entry;) {
    for (std::size_t n = 1;; ++n) {
      ASSERT_LT(n, 600U);
      FakeMachine machine;
      machine.population_parts = 2;
      machine.driver.failAt(entry, n, CUDA_ERROR_OUT_OF_MEMORY);
      const Status first = useOnce(machine, w, expected, entry);
      if (!first) {
        ++failures;
        EXPECT_FALSE(first.error().message.empty());
        EXPECT_TRUE(useOnce(machine, w, expected, entry).ok()) << "after call " << n << " of " << entry;
      }
      // Beyond the last call of this entry nothing fails any more. Contexts are asked for before every call.
      if (machine.driver.count(entry) < n || (n == 30 && entry.starts_with("cuCtx"))) break;
    }
  }
  EXPECT_GT(failures, 60U);
}

/// Expressions whose predictions of `rows` rows take so many megabytes.
Workload megabytes(std::size_t count, std::size_t rows) {
  Workload w = arithmeticWorkload(35, 0, rows, Precision::kF32);
  for (std::size_t e = 0; e < (count << 20) / (rows * sizeof(float)); ++e) {
    w.expressions.push_back(build({Token::variable(static_cast<std::uint32_t>(e % 5))}));
  }
  return w;
}

TEST(DeviceFaults, OutOfMemoryReportsSizes) {
  FakeMachine machine({.devices = {FakeDevice{.memory_bytes = 4 << 20}}});
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Workload w = megabytes(64, 9000);
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kInterpret});
  EXPECT_TRUE(gpu.loss(program, data, w.parameters).ok()) << "sums of chunks fit";
  std::vector<float> out(w.expressions.size() * w.rows());
  const auto predicted = gpu.evaluate(program, data, w.parameters, std::span<float>(out));
  ASSERT_FALSE(predicted.ok()) << "predictions do not, even for 4,096 rows";
  EXPECT_EQ(predicted.error().code, Errc::kMachine);
  EXPECT_NE(predicted.error().message.find("bytes wanted"), std::string::npos) << predicted.error().message;
  EXPECT_NE(predicted.error().message.find("bytes free"), std::string::npos) << predicted.error().message;
  EXPECT_TRUE(gpu.loss(program, data, w.parameters).ok()) << "and the engine goes on";
}

TEST(DeviceFaults, IdleRunsAreBounded) {
  FakeMachine machine({.devices = {FakeDevice{.memory_bytes = std::size_t{64} << 20}}});
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Workload w = megabytes(6, 1024);
  const Dataset data = gpu.upload(w.view()).value();
  const std::size_t before = machine.driver.usedBytes();
  {
    std::vector<Program> programs;
    for (int i = 0; i < 6; ++i) {
      programs.push_back(gpu.compile(w.expressions, {.tier = Tier::kInterpret}));
      predict(gpu, programs.back(), data, w.parameters);
      EXPECT_LT(machine.driver.usedBytes(), before + (std::size_t{9} << 20))
          << "one of 6 MB, and less than 8 MB in all";
    }
    machine.driver.forgetCalls();
    predict(gpu, programs.back(), data, w.parameters);
    EXPECT_EQ(machine.driver.count("cuMemAllocFromPoolAsync"), 0U) << "the last one is used again";
  }
  EXPECT_EQ(machine.driver.usedBytes(), before) << "idle memory of programs is freed with them";
}

TEST(DeviceFaults, IdleRunsAreReclaimedForDeviceMemory) {
  FakeMachine machine({.devices = {FakeDevice{.memory_bytes = std::size_t{40} << 20}}});
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Workload w = megabytes(12, 3000);
  const Dataset data = gpu.upload(w.view()).value();
  const Program first = gpu.compile(w.expressions, {.tier = Tier::kInterpret});
  const std::size_t half = w.expressions.size() / 2;
  const Program second = gpu.compile(std::span(w.expressions).first(half), {.tier = Tier::kInterpret});
  const std::vector<double> expected = predict(gpu, first, data, w.parameters);
  machine.driver.occupy(std::size_t{24} << 20);  // 4 MB are left beside the 12 of the first
  machine.driver.forgetCalls();
  expectSameBits(predict(gpu, second, data, w.parameters), std::span(expected).first(half * w.rows()), w.rows(),
                 "the second");
  EXPECT_EQ(machine.driver.count("cuLaunchKernel"), 1U) << "6 MB in one chunk, 40 % of what is free or idle";
  predict(gpu, first, data, w.parameters);
  machine.driver.occupy(std::size_t{25} << 20);
  machine.driver.forgetCalls();
  const Workload large = megabytes(2, 100'000);
  EXPECT_TRUE(gpu.upload(large.view()).ok());
  EXPECT_EQ(machine.driver.count("cuMemHostRegister"), 0U) << "resident, not streamed";
}

TEST(DeviceFaults, IdleMemoryIsReclaimedForModulesGraphsAndPinnedMemory) {
  for (const char* const entry : {"cuModuleLoadDataEx", "cuGraphInstantiateWithFlags", "cuMemHostAlloc"}) {
    SCOPED_TRACE(entry);
    FakeMachine machine;
    const Engine gpu = machine.engine({.math = Math::kStrict});
    const Workload w = arithmeticWorkload(36, 200, 300, Precision::kF32);
    const Dataset data = gpu.upload(w.view()).value();
    const Program idle = gpu.compile(w.expressions, {.tier = Tier::kInterpret});
    const Losses expected = gpu.loss(idle, data, w.parameters).value();
    const std::size_t freed = machine.driver.count("cuMemFreeHost"), buffers = machine.driver.count("cuMemFreeAsync");
    // More than the idle pinned memory.
    Workload larger = w;
    for (int i = 0; i < 20; ++i) {
      larger.expressions.insert(larger.expressions.end(), w.expressions.begin(), w.expressions.end());
      larger.parameters.insert(larger.parameters.end(), w.parameters.begin(), w.parameters.end());
    }
    machine.driver.failAt(entry, 1, CUDA_ERROR_OUT_OF_MEMORY);
    const Program program = gpu.compile(larger.expressions, {.tier = Tier::kCompile});
    const auto losses = gpu.loss(program, data, larger.parameters);
    ASSERT_TRUE(losses.ok()) << losses.error().message;
    EXPECT_TRUE(std::equal(expected.values.begin(), expected.values.end(), losses->values.begin(),
                           [](double a, double b) { return sameBits(a, b); }));
    EXPECT_GT(machine.driver.count("cuMemFreeHost"), freed) << "pinned memory";
    EXPECT_GT(machine.driver.count("cuMemFreeAsync"), buffers) << "buffers of the idle run";
  }
}

TEST(DeviceFaults, LostDeviceFailsEveryEvaluation) {
  FakeMachine machine;
  {
    const Engine gpu = machine.engine({.math = Math::kStrict});
    const Workload w = arithmeticWorkload(33, 20, 300, Precision::kF32);
    const auto [data, program] = prepared(gpu, w, {.tier = Tier::kInterpret});
    ASSERT_TRUE(gpu.loss(program, data, w.parameters).ok());
    machine.driver.failKernel(1, CUDA_ERROR_ILLEGAL_ADDRESS);
    for (int i = 0; i < 2; ++i) {
      const Result<Losses> losses = gpu.loss(program, data, w.parameters);
      ASSERT_FALSE(losses.ok());
      EXPECT_EQ(losses.error().code, Errc::kMachine);
      EXPECT_NE(losses.error().message.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos);
    }
  }
}

TEST(DeviceFaults, InterpreterCompileFailure) {
  FakeMachine machine;
  machine.images->before = [](const FakeImageMaker::Request&) -> Status {
    return Error{Errc::kMachine, "no assembler", {}};
  };
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Workload w = arithmeticWorkload(34, 20, 300, Precision::kF32);
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kInterpret});
  const Result<Losses> losses = gpu.loss(program, data, w.parameters);
  ASSERT_FALSE(losses.ok());
  EXPECT_EQ(losses.error().message, "no assembler");
}

// Each call of compile() that can fail does; its program is one of failures, and evaluates to NaN.
TEST(DeviceFaults, FailedProgramsEvaluateToNaN) {
  const Workload w = arithmeticWorkload(35, 10, 50, Precision::kF32);
  FakeMachine machine;
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const Dataset data = gpu.upload(w.view()).value();
  machine.driver.failAt("cuCtxSetCurrent", 1, CUDA_ERROR_UNKNOWN);
  const Program program = gpu.compile(w.expressions);
  ASSERT_EQ(program.failures().size(), w.expressions.size());
  const Losses losses = gpu.loss(program, data, w.parameters).value();
  EXPECT_EQ(losses.failures.size(), w.expressions.size());
  for (const double value : losses.values) EXPECT_TRUE(std::isnan(value));
  std::vector<float> out(w.expressions.size() * w.rows());
  ASSERT_TRUE(gpu.evaluate(program, data, w.parameters, std::span<float>(out)));
  for (const float value : out) EXPECT_TRUE(std::isnan(value));
  EXPECT_TRUE(gpu.prepare(program, data, LossOptions{}));
  auto pending = gpu.submitLoss(program, data, w.parameters);
  ASSERT_TRUE(pending);
  EXPECT_EQ(std::move(*pending).result().value().failures.size(), w.expressions.size());
}

TEST(DeviceFaults, FailedPendingIsReadyWithItsError) {
  const Workload w = arithmeticWorkload(36, 10, 50, Precision::kF32);
  FakeMachine machine({.lag = true});
  const Engine gpu = machine.engine({.math = Math::kStrict});
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kInterpret});
  ASSERT_TRUE(gpu.prepare(program, data, LossOptions{}));
  machine.driver.failKernel(1, CUDA_ERROR_ILLEGAL_ADDRESS);
  auto pending = gpu.submitLoss(program, data, w.parameters);
  ASSERT_TRUE(pending) << "the work lags behind";
  while (!pending->ready()) std::this_thread::yield();
  pending->wait();
  const Result<Losses> losses = std::move(*pending).result();
  ASSERT_FALSE(losses.ok());
  EXPECT_EQ(losses.error().code, Errc::kMachine);
}

TEST(DeviceFaults, RejectsUnsuitableAdoptedMemory) {
  FakeMachine machine;
  const Engine gpu = machine.engine();
  const std::vector<std::byte> zeros(4096);
  const CUdeviceptr memory = machine.driver.allocateForeign(zeros);
  const auto messageOf = [&](const DeviceDataView& view) {
    const Result<Dataset> data = gpu.adopt(view);
    return data ? std::string("accepted") : data.error().message;
  };
  const DeviceMatrix good{memory, 100, 2, 4, 400, Precision::kF32};
  EXPECT_EQ(messageOf({.columns = good}), "accepted");
  DeviceMatrix bad = good;
  bad.type = Precision::kF64;
  EXPECT_EQ(messageOf({.columns = bad}), "columns in f64, but the engine computes in f32");
  bad = good;
  bad.row_stride = 6;
  EXPECT_EQ(messageOf({.columns = bad}), "strides of 6 and 400 bytes: expected multiples of 4");
  bad = good;
  bad.rows = 0;
  EXPECT_EQ(messageOf({.columns = bad}), "data without rows");
  bad = good;
  bad.pointer = 64;
  EXPECT_NE(messageOf({.columns = bad}).find("which is not memory of"), std::string::npos);
  DeviceMatrix target{memory, 99, 1, 4, 0, Precision::kF32};
  EXPECT_EQ(messageOf({.columns = good, .target = target}), "the target of 99 rows x 1 columns, expected 100 x 1");
  target.rows = 100;
  EXPECT_EQ(messageOf({.columns = good, .target = target}), "accepted");
  EXPECT_EQ(messageOf({.columns = good, .weights = target}), "weights without a target");
  DeviceMatrix on_host = target;
  on_host.pointer = 64;
  EXPECT_THAT(messageOf({.columns = good, .target = on_host}),
              testing::StartsWith("the target at 0x40, which is not memory of"));
  EXPECT_EQ(messageOf({.columns = good, .target = target, .weights = target}), "the weights are all zero");
  const Engine cpu = cpuEngine(Precision::kF32);
  EXPECT_EQ(cpu.adopt({.columns = good}).error().code, Errc::kUnsupported);
  machine.driver.freeForeign(memory);
}

}  // namespace
}  // namespace srjit
