// Owners of CUDA's objects on a fake driver: what they do, what they free, and how every failure is said.
#include "runtime/cuda.h"

#include <cstring>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/fake_driver.h"
#include "tests/runtime/fake_image_maker.h"

namespace srjit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A device of a fake driver, whose context is current.
struct Device {
  explicit Device(FakeOptions options = {}) : fake(std::move(options)) {
    cuda = Cuda::open(fake.load().value(), 0).value();
    current.emplace(*cuda);
    stream = std::make_shared<const Stream>(cuda);
  }
  /// Kernel that computes x0 + p0, with one output.
  Module addition() const {
    Dag dag(Precision::kF32);
    dag.addRoot(dag.apply(Op::kAdd, {dag.variable(0), dag.parameter(0, 0)}));
    return Module(cuda, maker.rows(std::span(&dag, 1), {}).value());
  }

  FakeDriver fake;
  FakeImageMaker maker;
  std::shared_ptr<const Cuda> cuda;
  std::optional<CurrentContext> current;
  std::shared_ptr<const Stream> stream;
};

/// What `call` throws.
template <class Call>
CudaFailure failureOf(const Call& call) {
  try {
    call();
  } catch (const CudaFailure& failure) {
    return failure;
  }
  ADD_FAILURE() << "nothing failed";
  return CudaFailure(CUDA_SUCCESS, {});
}

FakeOptions withDevices(std::vector<FakeDevice> devices) {
  FakeOptions options;
  options.devices = std::move(devices);
  return options;
}

std::string openError(const FakeOptions& options, int ordinal, Errc code = Errc::kMachine) {
  const FakeDriver fake(options);
  const auto cuda = Cuda::open(fake.load().value(), ordinal);
  EXPECT_FALSE(cuda);
  if (cuda) return "";
  EXPECT_EQ(cuda.error().code, code);
  return cuda.error().message;
}

// ---- devices

TEST(Cuda, DeviceOutOfRange) {
  EXPECT_EQ(openError({}, 3), "device cuda:3, but this machine has 1 device");
  EXPECT_EQ(openError({}, -1), "device cuda:-1, but this machine has 1 device");
  EXPECT_EQ(openError(withDevices({}), 0), "device cuda:0, but this machine has no devices");
  EXPECT_EQ(openError(withDevices({{}, {}}), 2), "device cuda:2, but this machine has 2 devices");
}

TEST(Cuda, DeviceThatCannotBeUsed) {
  EXPECT_EQ(openError(withDevices({{.name = "Old", .capability = 61}}), 0, Errc::kUnsupported),
            "device cuda:0 (Old) has compute capability 6.1; kernels are made for sm_75 and later");
  EXPECT_EQ(openError(withDevices({{.name = "Slice", .has_pools = false}}), 0, Errc::kUnsupported),
            "device cuda:0 (Slice) has no stream-ordered memory pools");
}

TEST(Cuda, EveryCallOfOpenMayFail) {
  for (const char* const entry : {"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetUuid",
                                  "cuDeviceGetAttribute", "cuDeviceTotalMem", "cuDriverGetVersion",
                                  "cuDevicePrimaryCtxRetain", "cuMemPoolCreate", "cuMemPoolSetAttribute"}) {
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
    EXPECT_EQ(limits.uuid[0], 'a');
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

TEST(Cuda, StickyErrors) {
  for (const CUresult code : {4, 46, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999}) {
    EXPECT_TRUE(isSticky(code)) << code;
  }
  for (const CUresult code : {0, 1, 2, 100, 200, 201, 400, 500, 600, 701, 713, 720, 801}) {
    EXPECT_FALSE(isSticky(code)) << code;
  }
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

TEST(DeviceBuffer, LackOfMemorySaysHowMuch) {
  Device device(withDevices({{.memory_bytes = 100'000}}));
  const DeviceBuffer kept(device.stream, 25'600);
  const CudaFailure failure = failureOf([&] { const DeviceBuffer buffer(device.stream, 80'000); });
  EXPECT_EQ(failure.code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(failure.error().code, Errc::kMachine);
  EXPECT_EQ(failure.error().message, "out of device memory: 80000 bytes wanted, 74400 of 100000 bytes free");
  EXPECT_EQ(device.fake.count("cuMemPoolTrimTo"), 1u);
  EXPECT_EQ(device.fake.count("cuMemAllocFromPoolAsync"), 3u);
}

TEST(DeviceBuffer, TrimsThePoolAndTriesAgain) {
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

TEST(DeviceBuffer, LaterFailuresOfTheRetryAreSaid) {
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

TEST(PinnedBuffer, IsMemoryOfTheHost) {
  Device device;
  PinnedBuffer buffer(device.cuda, 12);
  EXPECT_EQ(buffer.as<float>().size(), 3u);
  buffer.as<float>()[2] = 4;
  const PinnedBuffer moved = std::move(buffer);
  EXPECT_EQ(moved.as<float>()[2], 4);
  EXPECT_EQ(PinnedBuffer(device.cuda, 0).data(), nullptr);
  device.fake.failAt("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(failureOf([&] { const PinnedBuffer failing(device.cuda, 99); }).error().message,
            "cuMemHostAlloc of 99 bytes failed: 2 CUDA_ERROR_OUT_OF_MEMORY, out of memory");
}

// ---- streams

TEST(Stream, CopiesFillsAndCopiesRows) {
  for (const bool lag : {false, true}) {
    FakeOptions options;
    options.lag = lag;
    Device device(options);
    const DeviceBuffer a(device.stream, 64), b(device.stream, 64);
    PinnedBuffer host(device.cuda, 64);
    const auto bytes = host.as<unsigned char>();
    std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
    device.stream->fill(a.address(), 7, 64);
    device.stream->copyToDevice(a.address(), bytes.data(), 4);
    device.stream->copyRowsToDevice(a.address() + 8, 16, bytes.data() + 32, 8, 2, 3);
    device.stream->copyOnDevice(b.address(), a.address(), 64);
    device.stream->synchronize();
    std::array<unsigned char, 64> result{};
    device.stream->copyToHost(result.data(), b.address(), 64);
    EXPECT_THAT(std::vector<unsigned char>(result.begin(), result.begin() + 12),
                ElementsAre(0, 1, 2, 3, 7, 7, 7, 7, 32, 33, 7, 7));
    EXPECT_EQ(result[24], 40);
    EXPECT_EQ(result[40], 48);
    std::array<unsigned char, 8> rows{};
    device.stream->copyRowsToHost(rows.data(), 4, b.address() + 8, 16, 2, 2);
    EXPECT_THAT(rows, ElementsAre(32, 33, 0, 0, 40, 41, 0, 0));
    // Nothing to do is no call.
    device.fake.forgetCalls();
    device.stream->copyToDevice(0, nullptr, 0);
    device.stream->copyToHost(nullptr, 0, 0);
    device.stream->copyOnDevice(0, 0, 0);
    device.stream->copyRowsToDevice(0, 0, nullptr, 0, 0, 3);
    device.stream->copyRowsToHost(nullptr, 0, 0, 0, 3, 0);
    device.stream->fill(0, 0, 0);
    EXPECT_EQ(device.fake.calls().size(), 0u);
  }
}

TEST(Stream, EveryCallMayFail) {
  Device device;
  const DeviceBuffer buffer(device.stream, 64);
  const Event event(device.cuda);
  std::array<std::byte, 64> host{};
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"cuMemcpyHtoDAsync", [&] { device.stream->copyToDevice(buffer.address(), host.data(), 64); }},
      {"cuMemcpyDtoHAsync", [&] { device.stream->copyToHost(host.data(), buffer.address(), 64); }},
      {"cuMemcpyDtoDAsync", [&] { device.stream->copyOnDevice(buffer.address(), buffer.address() + 32, 32); }},
      {"cuMemcpy2DAsync", [&] { device.stream->copyRowsToDevice(buffer.address(), 8, host.data(), 8, 4, 2); }},
      {"cuMemcpy2DAsync", [&] { device.stream->copyRowsToHost(host.data(), 8, buffer.address(), 8, 4, 2); }},
      {"cuMemsetD8Async", [&] { device.stream->fill(buffer.address(), 0, 64); }},
      {"cuEventRecord", [&] { device.stream->record(event); }},
      {"cuStreamWaitEvent", [&] { device.stream->wait(event); }},
      {"cuStreamSynchronize", [&] { device.stream->synchronize(); }},
      {"cuEventQuery", [&] { event.ready(); }},
      {"cuEventSynchronize", [&] { event.synchronize(); }},
      {"cuStreamCreate", [&] { const Stream stream(device.cuda); }},
      {"cuEventCreate", [&] { const Event other(device.cuda); }},
      {"cuGraphCreate", [&] { const Graph graph(device.cuda); }},
  };
  for (const auto& [entry, call] : calls) {
    device.fake.failAt(entry, 1, CUDA_ERROR_LAUNCH_FAILED);
    const CudaFailure failure = failureOf(call);
    EXPECT_EQ(failure.code(), CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(failure.error().code, Errc::kMachine);
    EXPECT_EQ(std::string(failure.what()),
              std::string(entry) + " failed: 719 CUDA_ERROR_LAUNCH_FAILED, unspecified launch failure");
    call();
  }
}

TEST(Event, TellsWhenWorkIsDone) {
  FakeOptions options;
  options.lag = true;
  Device device(options);
  const Event event(device.cuda);
  EXPECT_TRUE(event.ready()) << "never recorded";
  device.stream->record(event);
  EXPECT_FALSE(event.ready());
  EXPECT_TRUE(event.ready());
  device.stream->record(event);
  event.synchronize();
  EXPECT_TRUE(event.ready());
}

TEST(Event, MeasuresTime) {
  Device device;
  const Module module = device.addition();
  const Event start(device.cuda, Event::Timing::kOn), end(device.cuda, Event::Timing::kOn), plain(device.cuda);
  device.stream->record(start);
  device.stream->record(plain);
  const DeviceBuffer memory(device.stream, 4096);
  CUdeviceptr address = memory.address(), stride = 4, one = 1, rows = 4;
  device.stream->fill(memory.address(), 0, 4096);
  std::array<CUdeviceptr, 8> values = {address, stride, one, rows, address, address, address + 64, stride};
  auto arguments = std::apply([](auto&... v) { return addressesOf(v...); }, values);
  device.stream->launch({.kernel = module.kernel("srjit_rows_0").get(), .arguments = arguments});
  device.stream->record(end);
  EXPECT_NEAR(end.secondsSince(start), 1e-3, 1e-6);
  EXPECT_THAT(failureOf([&] { plain.secondsSince(start); }).error().message, HasSubstr("cuEventElapsedTime failed"));
}

TEST(Stream, WaitsForAnEventOfAnother) {
  FakeOptions options;
  options.lag = true;
  Device device(options);
  const auto other = std::make_shared<const Stream>(device.cuda);
  const DeviceBuffer a(device.stream, 4), b(device.stream, 4);
  std::array<unsigned char, 4> result{};
  const auto copyByOther = [&](unsigned char value, bool wait) {
    const Event filled(device.cuda);
    device.stream->fill(a.address(), value, 4);
    device.stream->record(filled);
    if (wait) other->wait(filled);
    other->copyOnDevice(b.address(), a.address(), 4);
    other->copyToHost(result.data(), b.address(), 4);
  };
  copyByOther(5, true);
  EXPECT_THAT(result, ElementsAre(5, 5, 5, 5));
  copyByOther(6, false);
  EXPECT_THAT(result, ElementsAre(5, 5, 5, 5)) << "a missing wait shows";
}

// ---- modules and graphs

TEST(Module, LoadsKernelsWithTheirFacts) {
  Device device;
  device.maker.facts = [](const Dag&) { return KernelFacts{{}, 40, 16, 0, 0}; };
  Module module = device.addition();
  const Kernel kernel = module.kernel("srjit_rows_0");
  EXPECT_EQ(kernel.facts().name, "srjit_rows_0");
  EXPECT_EQ(kernel.facts().registers, 40u);
  EXPECT_EQ(kernel.facts().stack_bytes, 16u);
  EXPECT_EQ(kernel.maxThreads(), 1024u);
  EXPECT_EQ(kernel.staticSharedBytes(), 0u);
  EXPECT_EQ(kernel.blocksPerMultiprocessor(0), 12u);
  const Module moved = std::move(module);
  EXPECT_EQ(moved.kernel("srjit_rows_0").get(), kernel.get());
  EXPECT_EQ(failureOf([&] { moved.kernel("srjit_rows_1"); }).error().message,
            "cuModuleGetFunction of srjit_rows_1 failed: 500 CUDA_ERROR_NOT_FOUND, named symbol not found");
  device.fake.failAt("cuFuncGetAttribute", 2, CUDA_ERROR_UNKNOWN);
  EXPECT_THAT(failureOf([&] { moved.kernel("srjit_rows_0"); }).error().message, HasSubstr("cuFuncGetAttribute failed"));
  device.fake.failAt("cuOccupancyMaxActiveBlocksPerMultiprocessor", 1, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(failureOf([&] { kernel.blocksPerMultiprocessor(0); }).code(), CUDA_ERROR_UNKNOWN);
}

TEST(Module, KeepsTheLog) {
  Device device;
  KernelImage image;
  image.code.resize(8);
  const CudaFailure bad = failureOf([&] { const Module module(device.cuda, image); });
  EXPECT_EQ(bad.code(), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(bad.error().code, Errc::kMachine);
  EXPECT_EQ(
      bad.error().message,
      "cuModuleLoadDataEx of 8 bytes of machine code failed: 200 CUDA_ERROR_INVALID_IMAGE, device kernel image is "
      "invalid: not an image of models");
  image.is_ptx = true;
  const CudaFailure ptx = failureOf([&] { const Module module(device.cuda, image); });
  EXPECT_EQ(ptx.error().code, Errc::kCompile);
  EXPECT_THAT(ptx.error().message, HasSubstr("8 bytes of PTX failed"));
  device.fake.failAt("cuModuleLoadDataEx", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(failureOf([&] { device.addition(); }).code(), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(Module, MachineCodeIsForOneMajorNumber) {
  Device device(withDevices({{.capability = 100}}));
  EXPECT_EQ(failureOf([&] { device.addition(); }).code(), CUDA_ERROR_NO_BINARY_FOR_GPU);
  device.maker.makes_ptx = true;
  EXPECT_NE(device.addition().kernel("srjit_rows_0").get(), nullptr);
}

TEST(Kernel, SharedMemoryAboveTheFreePart) {
  Device device;
  const Module module = device.addition();
  const Kernel kernel = module.kernel("srjit_rows_0");
  kernel.allowSharedBytes(kFreeSharedBytes);
  EXPECT_EQ(device.fake.count("cuFuncSetAttribute"), 0u);
  const KernelLaunch launch{.kernel = kernel.get(), .shared_bytes = 100'000};
  EXPECT_EQ(failureOf([&] { device.stream->launch(launch); }).code(), CUDA_ERROR_INVALID_VALUE);
  kernel.allowSharedBytes(100'000);
  EXPECT_EQ(device.fake.count("cuFuncSetAttribute"), 1u);
  EXPECT_THAT(failureOf([&] { kernel.allowSharedBytes(300'000); }).error().message,
              HasSubstr("cuFuncSetAttribute of srjit_rows_0, 300000 bytes of shared memory, failed: 1 "));
  EXPECT_EQ(
      failureOf([&] { device.stream->launch({.kernel = kernel.get(), .shared_bytes = 300'000}); }).error().message,
      "a launch with 300000 bytes of shared memory, but a block has at most 232448");
}

/// A launch of x0 + p0 over four rows, in one buffer: column, parameter, output's number, output.
struct Addition {
  Addition(const Device& device, const Module& module, float x, float p) : Addition(device.stream, module, x, p) {}
  Addition(const std::shared_ptr<const Stream>& stream, const Module& module, float x, float p)
      : kernel(module.kernel("srjit_rows_0")), memory(stream, 128) {
    std::array<float, 32> host{};
    std::fill_n(host.begin(), 4, x);
    host[4] = p;
    stream->copyToDevice(memory.address(), host.data(), sizeof host);
    const CUdeviceptr base = memory.address();
    values = {base, 4, 1, 4, base + 16, base + 64, base + 80, 4};
    addresses = std::apply([](auto&... v) { return addressesOf(v...); }, values);
  }
  KernelLaunch launch() const { return {.kernel = kernel.get(), .arguments = addresses}; }
  std::array<float, 4> result(const Stream& stream) const {
    std::array<float, 4> out{};
    stream.copyToHost(out.data(), memory.address() + 80, sizeof out);
    return out;
  }

  Kernel kernel;
  DeviceBuffer memory;
  std::array<CUdeviceptr, 8> values{};
  std::array<void*, 8> addresses{};
};

TEST(Stream, LaunchesAKernel) {
  Device device;
  const Module module = device.addition();
  const Addition sum(device, module, 2, 0.5);
  device.stream->launch(sum.launch());
  EXPECT_THAT(sum.result(*device.stream), ElementsAre(2.5f, 2.5f, 2.5f, 2.5f));
  EXPECT_EQ(device.fake.calls().back().entry, "cuMemcpyDtoHAsync");
  device.fake.failAt("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(failureOf([&] { device.stream->launch(sum.launch()); }).code(), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

TEST(Graph, LaunchesItsKernelsTogether) {
  Device device;
  const Module module = device.addition();
  const Addition a(device, module, 1, 2), b(device, module, 10, 20), c(device, module, 100, 200);
  Graph graph(device.cuda);
  EXPECT_EQ(graph.add(a.launch()), 0u);
  EXPECT_EQ(graph.add(b.launch()), 1u);
  graph.instantiate();
  EXPECT_EQ(graph.size(), 2u);
  graph.launch(*device.stream);
  EXPECT_EQ(a.result(*device.stream)[0], 3);
  EXPECT_EQ(b.result(*device.stream)[3], 30);
  graph.update(1, c.launch());
  const Graph moved = std::move(graph);
  moved.launch(*device.stream);
  EXPECT_EQ(c.result(*device.stream)[3], 300);
  EXPECT_EQ(device.fake.count("cuLaunchKernel"), 0u);
}

TEST(Graph, EveryCallMayFail) {
  Device device;
  const Module module = device.addition();
  const Addition sum(device, module, 1, 2);
  Graph graph(device.cuda);
  graph.add(sum.launch());
  graph.instantiate();
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"cuGraphAddKernelNode", [&] { graph.add(sum.launch()); }},
      {"cuGraphInstantiateWithFlags", [&] { graph.instantiate(); }},
      {"cuGraphExecKernelNodeSetParams", [&] { graph.update(0, sum.launch()); }},
      {"cuGraphLaunch", [&] { graph.launch(*device.stream); }},
  };
  for (const auto& [entry, call] : calls) {
    device.fake.failAt(entry, 1, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(std::string(failureOf(call).what()),
              std::string(entry) + " failed: 2 CUDA_ERROR_OUT_OF_MEMORY, out of memory");
    call();
  }
}

TEST(Stream, ThreadsHaveTheirOwn) {
  for (const bool lag : {false, true}) {
    FakeOptions options;
    options.lag = lag;
    Device device(options);
    const Module module = device.addition();
    std::vector<std::thread> threads;
    std::array<float, 4> results{};
    for (std::size_t t = 0; t < results.size(); ++t) {
      threads.emplace_back([&, t] {
        const CurrentContext current(*device.cuda);
        const auto stream = std::make_shared<const Stream>(device.cuda);
        for (int round = 0; round < 20; ++round) {
          const Addition sum(stream, module, static_cast<float>(t), 1);
          stream->launch(sum.launch());
          results[t] = sum.result(*stream)[0];
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(results, ElementsAre(1, 2, 3, 4));
    EXPECT_EQ(device.fake.usedBytes(), 0u);
  }
}

// ---- the lost device

TEST(LostDevice, KernelFailsWhenItIsWaitedFor) {
  Device device;
  const Module module = device.addition();
  const Addition sum(device, module, 1, 2);
  device.fake.failKernel(1, CUDA_ERROR_ILLEGAL_ADDRESS);
  device.stream->launch(sum.launch());
  const CudaFailure failure = failureOf([&] { device.stream->synchronize(); });
  EXPECT_TRUE(isSticky(failure.code()));
  EXPECT_EQ(failure.error().message,
            "cuStreamSynchronize failed: 700 CUDA_ERROR_ILLEGAL_ADDRESS, an illegal memory access was encountered");
  EXPECT_EQ(failureOf([&] { device.stream->launch(sum.launch()); }).code(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

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

// ---- what the fake notices

TEST(FakeDriver, NoticesWhatIsWrong) {
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

TEST(FakeDriver, NoticesPinnedMemoryFreedTooEarly) {
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

TEST(FakeDriver, NoticesUseAfterFree) {
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

TEST(FakeDriver, NoticesWhatIsLeftAlive) {
  CUevent leaked = nullptr;
  FakeDriver fake;
  const auto driver = fake.load().value();
  {
    const auto cuda = Cuda::open(driver, 0).value();
    const CurrentContext current(*cuda);
    ASSERT_EQ(driver->cuEventCreate(&leaked, 0), CUDA_SUCCESS);
  }
  EXPECT_THAT(fake.takeProblems(), ElementsAre("1 events left alive"));
  EXPECT_EQ(driver->cuEventDestroy(leaked), CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
}  // namespace srjit
