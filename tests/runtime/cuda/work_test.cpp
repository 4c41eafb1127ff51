// Streams, events, modules, kernels and graphs on a fake driver.
#include "runtime/cuda/handles.h"

#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu_model/fake_cuda.h"

namespace srjit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;

// ---- streams

TEST(Stream, CopiesFillsAndCopiesRows) {
  for (const bool lag : {false, true}) {
    FakeOptions options;
    options.lag = lag;
    Device device(options);
    const DeviceBuffer a(device.stream, 64);
    PinnedBuffer host(device.cuda, 64);
    const auto bytes = host.as<unsigned char>();
    std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
    device.stream->fill(a.address(), 7, 64);
    device.stream->copyToDevice(a.address(), bytes.data(), 4);
    device.stream->copyRows({a.address() + 8, 16}, {bytes.data() + 32, 8}, 2, 3);
    device.stream->synchronize();
    std::array<unsigned char, 64> result{};
    device.stream->copyToHost(result.data(), a.address(), 64);
    EXPECT_THAT(std::vector<unsigned char>(result.begin(), result.begin() + 12),
                ElementsAre(0, 1, 2, 3, 7, 7, 7, 7, 32, 33, 7, 7));
    EXPECT_EQ(result[24], 40);
    EXPECT_EQ(result[40], 48);
    std::array<unsigned char, 8> rows{};
    device.stream->copyRows({rows.data(), 4}, {a.address() + 8, 16}, 2, 2);
    EXPECT_THAT(rows, ElementsAre(32, 33, 0, 0, 40, 41, 0, 0));
    const DeviceBuffer b(device.stream, 64);
    device.stream->fill(b.address(), 9, 64);
    device.stream->copyRows({b.address() + 1, 3}, {a.address() + 8, 16}, 2, 2);
    device.stream->copyRows({b.address() + 8, 2}, {a.address() + 8, 2}, 2, 1);
    device.stream->copyToHost(result.data(), b.address(), 64);
    EXPECT_THAT(std::vector<unsigned char>(result.begin(), result.begin() + 11),
                ElementsAre(9, 32, 33, 9, 40, 41, 9, 9, 32, 33, 9));
    // Empty operations make no calls.
    device.fake.forgetCalls();
    device.stream->copyToDevice(0, nullptr, 0);
    device.stream->copyToHost(nullptr, 0, 0);
    device.stream->copyRows({CUdeviceptr{0}, 0}, {nullptr, 0}, 0, 3);
    device.stream->copyRows({nullptr, 0}, {CUdeviceptr{0}, 0}, 3, 0);
    device.stream->copyRows({CUdeviceptr{0}, 0}, {CUdeviceptr{0}, 0}, 0, 1);
    device.stream->copyRows({CUdeviceptr{0}, 0}, {CUdeviceptr{0}, 0}, 3, 0);
    device.stream->fill(0, 0, 0);
    EXPECT_EQ(device.fake.calls().size(), 0u);
  }
}

TEST(Stream, FailureOfEveryCallIsReported) {
  Device device;
  const DeviceBuffer buffer(device.stream, 64);
  const Event event(device.cuda);
  std::array<std::byte, 64> host{};
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"cuMemcpyHtoDAsync", [&] { device.stream->copyToDevice(buffer.address(), host.data(), 64); }},
      {"cuMemcpyDtoHAsync", [&] { device.stream->copyToHost(host.data(), buffer.address(), 64); }},
      {"cuMemcpy2DAsync", [&] { device.stream->copyRows({buffer.address(), 8}, {host.data(), 8}, 4, 2); }},
      {"cuMemcpy2DAsync", [&] { device.stream->copyRows({host.data(), 8}, {buffer.address(), 8}, 4, 2); }},
      {"cuMemcpyDtoDAsync", [&] { device.stream->copyRows({buffer.address(), 8}, {buffer.address() + 32, 8}, 8, 1); }},
      {"cuMemcpy2DAsync", [&] { device.stream->copyRows({buffer.address(), 8}, {buffer.address() + 32, 8}, 4, 2); }},
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

TEST(Event, IsReadyWhenWorkIsDone) {
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
  const Event start(device.cuda, true), end(device.cuda, true), plain(device.cuda);
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
  const DeviceBuffer a(device.stream, 4);
  std::array<unsigned char, 4> result{};
  const auto copyByOther = [&](unsigned char value, bool wait) {
    const Event filled(device.cuda);
    device.stream->fill(a.address(), value, 4);
    device.stream->record(filled);
    if (wait) other->wait(filled);
    other->copyToHost(result.data(), a.address(), 4);
  };
  copyByOther(5, true);
  EXPECT_THAT(result, ElementsAre(5, 5, 5, 5));
  copyByOther(6, false);
  EXPECT_THAT(result, ElementsAre(5, 5, 5, 5)) << "a missing wait changes the result";
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
  EXPECT_EQ(kernel.staticSharedBytes(), 0u);
  const Module moved = std::move(module);
  EXPECT_EQ(moved.kernel("srjit_rows_0").get(), kernel.get());
  EXPECT_EQ(failureOf([&] { moved.kernel("srjit_rows_1"); }).error().message,
            "cuModuleGetFunction of srjit_rows_1 failed: 500 CUDA_ERROR_NOT_FOUND, named symbol not found");
  device.fake.failAt("cuFuncGetAttribute", 2, CUDA_ERROR_UNKNOWN);
  EXPECT_THAT(failureOf([&] { moved.kernel("srjit_rows_0"); }).error().message, HasSubstr("cuFuncGetAttribute failed"));
}

TEST(Module, ErrorsHaveTheDriversLog) {
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
  image.form = ImageForm::kPtx;
  const CudaFailure ptx = failureOf([&] { const Module module(device.cuda, image); });
  EXPECT_EQ(ptx.error().code, Errc::kCompile);
  EXPECT_THAT(ptx.error().message, HasSubstr("8 bytes of PTX failed"));
  device.fake.failAt("cuModuleLoadDataEx", 1, CUDA_ERROR_OUT_OF_MEMORY);
  device.fake.failAt("cuModuleLoadDataEx", 2, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(failureOf([&] { device.addition(); }).code(), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(Module, MachineCodeIsForOneMajorArchitecture) {
  Device device(withDevices({{.capability = 100}}));
  EXPECT_EQ(failureOf([&] { device.addition(); }).code(), CUDA_ERROR_NO_BINARY_FOR_GPU);
  device.maker.makes_ptx = true;
  EXPECT_NE(device.addition().kernel("srjit_rows_0").get(), nullptr);
}

TEST(Kernel, SharedMemoryAboveTheDefaultNeedsAnAttribute) {
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

/// A launch of x0 + p0 over four rows. One buffer has the column, parameter, output number and output.
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

// On a full device the driver may call the lack of memory unknown.
TEST(Stream, ALaunchWithoutMemorySaysSo) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  Device device(withDevices({{.memory_bytes = kBytes}}));
  const Module module = device.addition();
  const Addition sum(device, module, 2, 0.5);
  const auto failure = [&](CUresult code) {
    device.fake.failAt("cuLaunchKernel", 1, code);
    return failureOf([&] { device.stream->launch(sum.launch()); });
  };
  EXPECT_EQ(failure(CUDA_ERROR_UNKNOWN).error().message,
            "cuLaunchKernel failed: 999 CUDA_ERROR_UNKNOWN, unknown error");
  EXPECT_EQ(failure(CUDA_ERROR_UNKNOWN).code(), CUDA_ERROR_UNKNOWN);
  device.fake.occupy(kBytes - 4096);
  for (const CUresult code : {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY}) {
    EXPECT_THAT(failure(code).error().message,
                MatchesRegex("cuLaunchKernel failed: [29].*; a launch can need device memory, and [0-9]+ of 1073741824 "
                             "bytes are free"));
    EXPECT_EQ(failure(code).code(), CUDA_ERROR_OUT_OF_MEMORY);
  }
  EXPECT_EQ(failure(CUDA_ERROR_LAUNCH_FAILED).code(), CUDA_ERROR_LAUNCH_FAILED);
  device.stream->launch(sum.launch());
  EXPECT_THAT(sum.result(*device.stream), ElementsAre(2.5f, 2.5f, 2.5f, 2.5f));
}

TEST(Graph, LaunchesItsKernelsTogether) {
  Device device;
  const Module module = device.addition();
  const Addition a(device, module, 1, 2), b(device, module, 10, 20);
  Graph graph(device.cuda);
  graph.add(a.launch());
  graph.add(b.launch());
  graph.instantiate();
  graph.launch(*device.stream);
  EXPECT_EQ(a.result(*device.stream)[0], 3);
  EXPECT_EQ(b.result(*device.stream)[3], 30);
  const Graph moved = std::move(graph);
  moved.launch(*device.stream);
  EXPECT_EQ(device.fake.calls().back().detail, "2 kernels");
  EXPECT_EQ(device.fake.count("cuLaunchKernel"), 0u);
}

TEST(Graph, FailureOfEveryCallIsReported) {
  Device device;
  const Module module = device.addition();
  const Addition sum(device, module, 1, 2);
  Graph graph(device.cuda);
  graph.add(sum.launch());
  graph.instantiate();
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"cuGraphAddKernelNode", [&] { graph.add(sum.launch()); }},
      {"cuGraphInstantiateWithFlags", [&] { graph.instantiate(); }},
      {"cuGraphLaunch", [&] { graph.launch(*device.stream); }},
  };
  for (const auto& [entry, call] : calls) {
    device.fake.failAt(entry, 1, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(std::string(failureOf(call).what()),
              std::string(entry) + " failed: 999 CUDA_ERROR_UNKNOWN, unknown error");
    call();
  }
}

// ---- lack of memory

TEST(Cuda, AllocatingCallsAreRetriedAfterReclaiming) {
  Device device;
  const Module module = device.addition();
  const Addition sum(device, module, 1, 2);
  Graph graph(device.cuda);
  graph.add(sum.launch());
  std::array<std::byte, 64> host{};
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"cuMemAllocFromPoolAsync", [&] { const DeviceBuffer buffer(device.stream, 64); }},
      {"cuMemHostAlloc", [&] { const PinnedBuffer buffer(device.cuda, 64); }},
      {"cuMemHostRegister", [&] { const PinnedRegion region(device.cuda, host.data(), host.size()); }},
      {"cuModuleLoadDataEx", [&] { device.addition(); }},
      {"cuModuleGetFunction", [&] { module.kernel("srjit_rows_0"); }},
      {"cuGraphInstantiateWithFlags", [&] { graph.instantiate(); }},
  };
  std::size_t reclaimed = 0;
  device.cuda->setReclaim([&] { ++reclaimed; });
  for (const auto& [entry, call] : calls) {
    SCOPED_TRACE(entry);
    device.fake.failAt(entry, 1, CUDA_ERROR_OUT_OF_MEMORY);
    reclaimed = 0;
    EXPECT_NO_THROW(call());
    EXPECT_EQ(reclaimed, 1U);
    device.fake.failAt(entry, 1, CUDA_ERROR_OUT_OF_MEMORY);
    device.fake.failAt(entry, 2, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(failureOf(call).code(), CUDA_ERROR_OUT_OF_MEMORY);
    device.fake.failAt(entry, 1, CUDA_ERROR_UNKNOWN);
    reclaimed = 0;
    EXPECT_EQ(failureOf(call).code(), CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(reclaimed, 0U) << "only lack of memory is retried";
  }
  device.cuda->setReclaim(nullptr);
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

TEST(LostDevice, KernelFailureIsReportedBySynchronization) {
  Device device;
  const Module module = device.addition();
  const Addition sum(device, module, 1, 2);
  device.fake.failKernel(1, CUDA_ERROR_ILLEGAL_ADDRESS);
  device.stream->launch(sum.launch());
  const CudaFailure failure = failureOf([&] { device.stream->synchronize(); });
  EXPECT_EQ(failure.code(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(failure.error().message,
            "cuStreamSynchronize failed: 700 CUDA_ERROR_ILLEGAL_ADDRESS, an illegal memory access was encountered");
  EXPECT_EQ(failureOf([&] { device.stream->launch(sum.launch()); }).code(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace
}  // namespace srjit
