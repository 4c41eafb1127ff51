// Faults while a device encodes a population: the host encodes instead, or all expressions fail; never wrong numbers.
#include <gmock/gmock.h>

#include "tests/runtime/tiers/encoding_machine.h"

namespace srjit {
namespace {

using testing::HasSubstr;

class EncodingFaults : public testing::Test, protected Encoding {
 protected:
  explicit EncodingFaults(FakeOptions options = {}) : Encoding(std::move(options)) {}
  /// The next population is the device's again.
  void expectRecovery() {
    machine_.driver.forgetFailures();
    const Program program = compile();
    EXPECT_TRUE(program.failures().empty());
    EXPECT_GT(program.info().encoded_on_device, 0U);
    expectSameLosses(engine_.loss(program, data_, w_.parameters).value(), expected_, "afterwards");
  }

  const Losses expected_ = engine_.loss(on_host_, data_, w_.parameters).value();
};

TEST_F(EncodingFaults, WithoutMemoryTheHostEncodes) {
  const std::size_t all = std::size_t{1} << 30;
  // Only the programs fit.
  machine_.driver.occupy(all - machine_.driver.usedBytes() - (std::size_t{12} << 20));
  const Program program = compile();
  EXPECT_TRUE(program.failures().empty());
  EXPECT_EQ(program.info().encoded_on_device, 0U);
  machine_.driver.occupy(0);
  expectSameLosses(engine_.loss(program, data_, w_.parameters).value(), expected_, "short of memory");
  expectRecovery();
}

/// Sanitizers look at fewer sizes of memory and at every other call, since each takes them seconds.
#ifdef SRJIT_SANITIZED
constexpr std::size_t kSizesApart = 5, kCallsApart = 2;
#else
constexpr std::size_t kSizesApart = 1, kCallsApart = 1;
#endif

/// With `from` to `to` MiB free, `compile` does not fail; with few the host encodes, with many the device.
template <class Compile>
void expectNoFailureWith(FakeMachine& machine, std::size_t from, std::size_t to, std::size_t step,
                         const Compile& compile) {
  const std::size_t all = std::size_t{1} << 30, used = machine.driver.usedBytes();
  std::size_t by_host = 0, by_device = 0;
  for (std::size_t free = from; free < to; free += step * kSizesApart) {
    machine.driver.occupy(all - used - (free << 20));
    const Program program = compile();
    EXPECT_TRUE(program.failures().empty()) << free << " MiB: " << program.failures()[0].error.message;
    ++(program.info().encoded_on_device > 0 ? by_device : by_host);
  }
  EXPECT_GT(by_host, 0U);
  EXPECT_GT(by_device, 0U);
}

// Also if the memory suffices for encoding, but not for the programs after it.
TEST_F(EncodingFaults, MemoryThatIsEnoughForTheHostIsEnough) {
  expectNoFailureWith(machine_, 4, 64, 1, [&] { return compile(); });
}

// With few multiprocessors the programs take more memory after encoding than the workers have freed. The host's
// programs take 29 MiB.
TEST(DeviceEncodingFaults, ShortMemoryAfterEncodingIsNoFailure) {
  EncodingMachine machine({.devices = {FakeDevice{.multiprocessors = 1}}});
  const Engine engine = machine.engine();
  const Workload few = populationOf(10'000);
  std::vector<Expression> expressions;
  for (int i = 0; i < 30; ++i) expressions.insert(expressions.end(), few.expressions.begin(), few.expressions.end());
  const auto compile = [&] { return engine.compile(expressions, {.tier = Tier::kInterpret}); };
  compile();
  machine.allow();
  encodedBy(compile);
  // How much encoding takes depends on the device's share, which is up to 95 of 100 where the host is slow.
  expectNoFailureWith(machine, 32, 208, 16, compile);
}

// While the device encodes.
TEST_F(EncodingFaults, TheDeadlineMayPass) {
  machine_.driver.forgetCalls();
  const Engine hurried = engine_.withLimits({.max_seconds = 1e-9}).value();
  const Program program = hurried.compile(w_.expressions, {.tier = Tier::kInterpret});
  ASSERT_EQ(program.failures().size(), w_.expressions.size());
  EXPECT_EQ(program.failures()[0].error.code, Errc::kLimit);
  EXPECT_EQ(machine_.launchesOf(kEncodeKernel), 1U);
  EXPECT_EQ(machine_.launchesOf(kLinkKernel), 0U);
  expectRecovery();
}

TEST_F(EncodingFaults, AFailedLaunchIsAFailureOfAllExpressions) {
  for (const std::size_t launch : {1, 2}) {
    machine_.driver.forgetCalls();
    machine_.driver.failAt("cuLaunchKernel", launch, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    const Program program = compile();
    ASSERT_EQ(program.failures().size(), w_.expressions.size()) << launch;
    EXPECT_THAT(program.failures()[0].error.message, HasSubstr("cuLaunchKernel failed: 701"));
    EXPECT_EQ(machine_.driver.failedEntry(), "cuLaunchKernel");
    EXPECT_EQ(machine_.launchesOf(kEncodeKernel), launch - 1) << "calls that failed are not noted";
    expectRecovery();
  }
}

TEST_F(EncodingFaults, ALostDeviceIsAFailureOfAllExpressions) {
  for (const std::size_t kernel : {1, 2}) {
    machine_.driver.forgetCalls();
    machine_.driver.failKernel(kernel, CUDA_ERROR_ILLEGAL_ADDRESS);
    const Program program = compile();
    ASSERT_EQ(program.failures().size(), w_.expressions.size()) << kernel;
    EXPECT_EQ(program.failures()[0].error.code, Errc::kMachine);
    EXPECT_THAT(program.failures()[0].error.message, HasSubstr("700 CUDA_ERROR_ILLEGAL_ADDRESS"));
    machine_.driver.loseDevice(CUDA_SUCCESS);
    expectRecovery();
  }
}

class LaggingEncodingFaults : public EncodingFaults {
 protected:
  LaggingEncodingFaults() : EncodingFaults({.lag = true}) {}
};

// Each call of the driver fails once: the host encodes, or all expressions fail; never wrong numbers.
TEST_F(LaggingEncodingFaults, EveryCallMayFailOnce) {
  std::size_t failed = 0, served = 0;
  for (const char* const entry : {"cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemHostAlloc", "cuMemcpyHtoDAsync",
                                  "cuMemcpyDtoHAsync", "cuMemsetD8Async", "cuLaunchKernel", "cuEventCreate",
                                  "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime", "cuStreamSynchronize"}) {
    for (const CUresult code : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES}) {
      for (std::size_t n = 1;; n += kCallsApart) {
        SCOPED_TRACE(fmt::format("call {} of {}, code {}", n, entry, code));
        ASSERT_LT(n, 100U);
        machine_.driver.forgetCalls();
        machine_.driver.failAt(entry, n, code);
        const Program program = compile();
        machine_.driver.forgetFailures();
        if (machine_.driver.count(entry) < n) break;
        if (!program.failures().empty()) {
          ++failed;
          ASSERT_EQ(program.failures().size(), w_.expressions.size());
          EXPECT_THAT(program.failures()[0].error.message, HasSubstr(entry));
          continue;
        }
        ++served;
        expectSameLosses(engine_.loss(program, data_, w_.parameters).value(), expected_, "served");
      }
    }
  }
  EXPECT_GT(failed, 10U);
  EXPECT_GT(served, 3U);
  expectRecovery();
}

// The same while the kernels are loaded, in the background: the host encodes.
TEST(DeviceEncodingFaults, LoadingTheKernelsMayFail) {
  const Workload w = populationOf(kEncoded);
  for (const char* const entry : {"cuModuleLoadDataEx", "cuModuleGetFunction", "cuMemAllocFromPoolAsync",
                                  "cuMemcpyHtoDAsync", "cuStreamSynchronize"}) {
    SCOPED_TRACE(entry);
    EncodingMachine machine;
    const Engine engine = machine.engine();
    const auto compile = [&] { return engine.compile(w.expressions, {.tier = Tier::kInterpret}); };
    for (int population = 0; population < 2; ++population) compile();
    // Lack of memory would be tried again.
    machine.driver.failAt(entry, 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    machine.allow();
    waitUntil([&] { return machine.driver.hasFailed(); });
    const Program program = compile();
    EXPECT_TRUE(program.failures().empty());
    EXPECT_EQ(program.info().encoded_on_device, 0U);
  }
}

}  // namespace
}  // namespace srjit
