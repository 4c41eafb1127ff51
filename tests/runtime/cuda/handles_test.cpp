// Devices, contexts and memory on a fake driver: effects, release, and reports of every failure.
#include "runtime/cuda/handles.h"

#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu_model/fake_cuda.h"

namespace srjit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string openError(const FakeOptions& options, int ordinal, Errc code = Errc::kMachine) {
  const FakeDriver fake(options);
  const auto cuda = Cuda::open(fake.load().value(), ordinal);
  EXPECT_FALSE(cuda);
  if (cuda) return "";
  EXPECT_EQ(cuda.error().code, code);
  return cuda.error().message;
}

// ---- devices

TEST(Cuda, DeviceOutOfRangeIsAnError) {
  EXPECT_EQ(openError({}, 3), "device cuda:3, but this machine has 1 device");
  EXPECT_EQ(openError({}, -1), "device cuda:-1, but this machine has 1 device");
  EXPECT_EQ(openError(withDevices({}), 0), "device cuda:0, but this machine has no devices");
  EXPECT_EQ(openError(withDevices({{}, {}}), 2), "device cuda:2, but this machine has 2 devices");
}

TEST(Cuda, UnsupportedDeviceIsAnError) {
  EXPECT_EQ(openError(withDevices({{.name = "Old", .capability = 61}}), 0, Errc::kUnsupported),
            "device cuda:0 (Old) has compute capability 6.1; kernels are made for sm_75 and later");
  EXPECT_EQ(openError(withDevices({{.name = "Slice", .has_pools = false}}), 0, Errc::kUnsupported),
            "device cuda:0 (Slice) has no stream-ordered memory pools");
}

TEST(Cuda, FailureOfEveryCallOfOpenIsReported) {
  for (const char* const entry :
       {"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute", "cuDeviceTotalMem",
        "cuDriverGetVersion", "cuDevicePrimaryCtxRetain", "cuMemPoolCreate", "cuMemPoolSetAttribute"}) {
    FakeDriver fake;
    const auto driver = fake.load().value();
    fake.failAt(entry, 1, CUDA_ERROR_UNKNOWN);
    const auto cuda = Cuda::open(driver, 0);
    ASSERT_FALSE(cuda) << entry;
    EXPECT_EQ(cuda.error().code, Errc::kMachine);
    EXPECT_EQ(cuda.error().message, std::string(entry) + " failed: 999 CUDA_ERROR_UNKNOWN, unknown error");
  }
}

TEST(Cuda, LimitsAndArchitecture) {
  struct Case {
    unsigned capability;
    const char* arch;
    bool needs_ptx;
  };
  for (const Case& c :
       {Case{75, "sm_75", false}, Case{80, "sm_80", false}, Case{86, "sm_86", false}, Case{88, "sm_87", false},
        Case{90, "sm_90", false}, Case{100, "sm_90", true}, Case{120, "sm_90", true}}) {
    const FakeDriver fake(withDevices({{.capability = c.capability, .multiprocessors = 7}}));
    const auto cuda = Cuda::open(fake.load().value(), 0);
    ASSERT_TRUE(cuda) << cuda.error().message;
    const DeviceLimits& limits = (*cuda)->limits();
    EXPECT_EQ(limits.capability, c.capability);
    EXPECT_EQ(limits.arch, c.arch);
    EXPECT_EQ(limits.needs_ptx, c.needs_ptx) << c.capability;
    EXPECT_EQ(limits.name, "Fake H200");
    EXPECT_EQ(limits.multiprocessors, 7u);
    EXPECT_EQ(limits.shared_bytes_per_block, std::size_t{227} << 10);
    EXPECT_EQ(limits.shared_bytes_per_multiprocessor, std::size_t{228} << 10);
    EXPECT_EQ(limits.memory_bytes, std::size_t{1} << 30);
    EXPECT_EQ(limits.driver_version, 13000);
  }
}

TEST(Cuda, ListsDevices) {
  FakeDriver fake(withDevices({{.name = "A"}, {.name = "B", .capability = 61}}));
  const auto driver = fake.load().value();
  const auto devices = listDevices(*driver);
  ASSERT_TRUE(devices);
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[1].name, "B");
  EXPECT_EQ((*devices)[1].ordinal, 1);
  EXPECT_EQ((*devices)[1].arch, "");
  EXPECT_EQ(fake.count("cuDevicePrimaryCtxRetain"), 0u);
  fake.failAt("cuDeviceGetCount", 1, CUDA_ERROR_NO_DEVICE);
  EXPECT_TRUE(listDevices(*driver)->empty());
  fake.failAt("cuDeviceGetCount", 1, CUDA_ERROR_UNKNOWN);
  EXPECT_THAT(listDevices(*driver).error().message, HasSubstr("cuDeviceGetCount failed"));
}

// ---- contexts

TEST(Cuda, ContextIsRestored) {
  FakeDriver fake(withDevices({{}, {}}));
  const auto driver = fake.load().value();
  const auto first = Cuda::open(driver, 0).value(), second = Cuda::open(driver, 1).value();
  const auto current = [&] {
    CUcontext context = nullptr;
    driver->cuCtxGetCurrent(&context);
    return context;
  };
  {
    const CurrentContext outer(*first);
    EXPECT_EQ(current(), first->context());
    {
      const CurrentContext inner(*second), same(*second);
      EXPECT_EQ(current(), second->context());
    }
    EXPECT_EQ(current(), first->context());
  }
  EXPECT_EQ(current(), nullptr);
  fake.failAt("cuCtxSetCurrent", 1, CUDA_ERROR_UNKNOWN);
  EXPECT_THAT(failureOf([&] { const CurrentContext failing(*first); }).error().message,
              HasSubstr("cuCtxSetCurrent failed"));
}

TEST(Cuda, CallsNeedAContext) {
  Device device;
  device.current.reset();
  EXPECT_EQ(failureOf([&] { const Stream stream(device.cuda); }).code(), CUDA_ERROR_INVALID_CONTEXT);
}

// ---- memory

TEST(DeviceBuffer, IsAllocatedAndFreedInItsStream) {
  Device device;
  {
    DeviceBuffer buffer(device.stream, 1000);
    EXPECT_NE(buffer.address(), 0u);
    EXPECT_EQ(buffer.address() % 256, 0u);
    EXPECT_EQ(buffer.bytes(), 1000u);
    EXPECT_EQ(device.fake.usedBytes(), 1024u);
    DeviceBuffer other = std::move(buffer);
    EXPECT_EQ(buffer.address(), 0u);
    buffer = std::move(other);
    EXPECT_EQ(buffer.bytes(), 1000u);
  }
  EXPECT_EQ(device.fake.usedBytes(), 0u);
  const DeviceBuffer empty(device.stream, 0);
  EXPECT_EQ(empty.address(), 0u);
  EXPECT_EQ(device.fake.count("cuMemAllocFromPoolAsync"), 1u);
}

TEST(DeviceBuffer, OutOfMemoryReportsSizes) {
  Device device(withDevices({{.memory_bytes = 100'000}}));
  const DeviceBuffer kept(device.stream, 25'600);
  const CudaFailure failure = failureOf([&] { const DeviceBuffer buffer(device.stream, 80'000); });
  EXPECT_EQ(failure.code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(failure.error().code, Errc::kMachine);
  EXPECT_EQ(failure.error().message, "out of device memory: 80000 bytes wanted, 74400 of 100000 bytes free");
  EXPECT_EQ(device.fake.count("cuMemPoolTrimTo"), 1u);
  EXPECT_EQ(device.fake.count("cuMemAllocFromPoolAsync"), 3u);
}

TEST(DeviceBuffer, RetriesAfterTrimmingThePool) {
  Device device;
  {
    const DeviceBuffer freed(device.stream, 4096);
  }
  device.fake.failAt("cuMemAllocFromPoolAsync", 1, CUDA_ERROR_OUT_OF_MEMORY);
  const DeviceBuffer buffer(device.stream, 64);
  EXPECT_NE(buffer.address(), 0u);
  EXPECT_EQ(device.fake.count("cuMemPoolTrimTo"), 1u);
}

TEST(DeviceBuffer, OtherFailuresAreNotRetried) {
  Device device;
  device.fake.failAt("cuMemAllocFromPoolAsync", 1, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(failureOf([&] { const DeviceBuffer buffer(device.stream, 64); }).error().message,
            "cuMemAllocFromPoolAsync failed: 999 CUDA_ERROR_UNKNOWN, unknown error");
  EXPECT_EQ(device.fake.count("cuMemPoolTrimTo"), 0u);
}

TEST(DeviceBuffer, FailuresOfTheRetryAreReported) {
  Device device;
  device.fake.failAt("cuMemAllocFromPoolAsync", 1, CUDA_ERROR_OUT_OF_MEMORY);
  device.fake.failAt("cuMemPoolTrimTo", 1, CUDA_ERROR_UNKNOWN);
  EXPECT_THAT(failureOf([&] { const DeviceBuffer buffer(device.stream, 64); }).error().message,
              HasSubstr("cuMemPoolTrimTo failed"));
}

TEST(DeviceBuffer, FreesWithoutAContextAndOnAnyThread) {
  Device device;
  auto buffer = std::make_unique<DeviceBuffer>(device.stream, 64);
  std::thread([&] { buffer.reset(); }).join();
  EXPECT_EQ(device.fake.usedBytes(), 0u);
}

TEST(Cuda, FreeMemoryCountsThePool) {
  Device device(withDevices({{.memory_bytes = 1 << 20}}));
  {
    const DeviceBuffer freed(device.stream, 4096);
  }
  EXPECT_EQ(device.cuda->freeMemory(), std::size_t{1} << 20);
  const DeviceBuffer kept(device.stream, 1024);
  EXPECT_EQ(device.cuda->freeMemory(), (std::size_t{1} << 20) - 1024);
  device.fake.occupy(1 << 19);
  EXPECT_EQ(device.cuda->freeMemory(), (std::size_t{1} << 19) - 1024);
  device.fake.failAt("cuMemGetInfo", 1, CUDA_ERROR_UNKNOWN);
  EXPECT_THAT(failureOf([&] { device.cuda->freeMemory(); }).error().message, HasSubstr("cuMemGetInfo failed"));
  device.fake.failAt("cuMemPoolGetAttribute", 1, CUDA_ERROR_UNKNOWN);
  EXPECT_THAT(failureOf([&] { device.cuda->freeMemory(); }).error().message, HasSubstr("cuMemPoolGetAttribute failed"));
}

TEST(Cuda, KnowsItsMemory) {
  Device device(withDevices({{}, {}}));
  const std::array<std::byte, 16> bytes{};
  const CUdeviceptr own = device.fake.allocateForeign(bytes, 0), other = device.fake.allocateForeign(bytes, 1);
  const PinnedBuffer pinned(device.cuda, 16);
  EXPECT_TRUE(device.cuda->owns(own + 15));
  EXPECT_FALSE(device.cuda->owns(own + 16));
  EXPECT_FALSE(device.cuda->owns(other));
  EXPECT_FALSE(device.cuda->owns(reinterpret_cast<CUdeviceptr>(pinned.data())));
  EXPECT_FALSE(device.cuda->owns(64));
  device.fake.freeForeign(own);
  device.fake.freeForeign(other);
}

TEST(PinnedBuffer, IsHostMemory) {
  Device device;
  PinnedBuffer buffer(device.cuda, 12);
  EXPECT_EQ(buffer.as<float>().size(), 3u);
  buffer.as<float>()[2] = 4;
  const PinnedBuffer moved = std::move(buffer);
  EXPECT_EQ(moved.as<float>()[2], 4);
  EXPECT_EQ(PinnedBuffer(device.cuda, 0).data(), nullptr);
  device.fake.failAt("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
  device.fake.failAt("cuMemHostAlloc", 2, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(failureOf([&] { const PinnedBuffer failing(device.cuda, 99); }).error().message,
            "cuMemHostAlloc of 99 bytes failed: 2 CUDA_ERROR_OUT_OF_MEMORY, out of memory");
}

// ---- the lost device

TEST(LostDevice, DestructorsDoNotThrow) {
  for (const bool on_a_thread : {false, true}) {
    FakeDriver fake;
    auto cuda = Cuda::open(fake.load().value(), 0).value();
    std::optional<CurrentContext> current(*cuda);
    auto stream = std::make_shared<const Stream>(cuda);
    std::optional<DeviceBuffer> buffer(std::in_place, stream, 64);
    std::optional<PinnedBuffer> pinned(std::in_place, cuda, 64);
    std::optional<Event> event(cuda);
    std::optional<Graph> graph(cuda);
    graph->instantiate();
    fake.loseDevice(CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(failureOf([&] { stream->synchronize(); }).code(), CUDA_ERROR_UNKNOWN);
    const auto destroy = [&] {
      graph.reset();
      event.reset();
      pinned.reset();
      buffer.reset();
      stream.reset();
    };
    if (on_a_thread) {
      std::thread(destroy).join();
    } else {
      destroy();
    }
    current.reset();
    cuda.reset();
  }
}

// ---- misuse that the fake driver reports

TEST(FakeDriver, ReportsInvalidCalls) {
  std::vector<std::string> problems;
  {
    FakeDriver fake;
    const auto driver = fake.load().value();
    const auto cuda = Cuda::open(driver, 0).value();
    const CurrentContext current(*cuda);
    const auto stream = std::make_shared<const Stream>(cuda);
    const DeviceBuffer buffer(stream, 64);
    EXPECT_EQ(driver->cuMemFreeAsync(buffer.address() + 4096, stream->get()), CUDA_ERROR_INVALID_VALUE);
    CUevent leaked = nullptr;
    ASSERT_EQ(driver->cuEventCreate(&leaked, 0), CUDA_SUCCESS);
    stream->fill(buffer.address(), 0, 65);
    EXPECT_EQ(failureOf([&] { stream->synchronize(); }).code(), CUDA_ERROR_ILLEGAL_ADDRESS);
    problems = fake.takeProblems();
    ASSERT_EQ(problems.size(), 2u);
    EXPECT_EQ(problems[0], "device memory is freed that is not allocated");
    EXPECT_THAT(problems[1], HasSubstr("65 bytes at 0x"));
    driver->cuEventDestroy(leaked);
  }
}

TEST(FakeDriver, ReportsPinnedMemoryFreedTooEarly) {
  FakeOptions options;
  options.lag = true;
  Device device(options);
  const DeviceBuffer buffer(device.stream, 64);
  {
    const PinnedBuffer pinned(device.cuda, 64);
    device.stream->copyToDevice(buffer.address(), pinned.data(), 64);
  }
  EXPECT_THAT(device.fake.takeProblems(), ElementsAre("pinned memory is freed before a copy is done"));
}

TEST(FakeDriver, ReportsUseAfterFree) {
  FakeOptions options;
  options.lag = true;
  Device device(options);
  const auto other = std::make_shared<const Stream>(device.cuda);
  auto buffer = std::make_unique<DeviceBuffer>(device.stream, 64);
  other->fill(buffer->address(), 0, 64);
  buffer.reset();
  device.stream->synchronize();
  EXPECT_EQ(failureOf([&] { other->synchronize(); }).code(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(device.fake.takeProblems().size(), 1u);
}

TEST(FakeDriver, ReportsLeaks) {
  CUevent leaked = nullptr;
  FakeDriver fake;
  const auto driver = fake.load().value();
  {
    const auto cuda = Cuda::open(driver, 0).value();
    const CurrentContext current(*cuda);
    ASSERT_EQ(driver->cuEventCreate(&leaked, 0), CUDA_SUCCESS);
  }
  EXPECT_THAT(fake.takeProblems(), ElementsAre("1 events not destroyed"));
  EXPECT_EQ(driver->cuEventDestroy(leaked), CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
}  // namespace srjit
