#include "runtime/cuda/handles.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>

namespace srjit {
namespace {

void* allocatePinned(const Cuda& cuda, std::size_t bytes) {
  void* address = nullptr;
  if (bytes == 0) return address;
  const CUresult code =
      cuda.retrying([&] { return cuda.driver().cuMemHostAlloc(&address, bytes, CU_MEMHOSTALLOC_PORTABLE); });
  // The text is made only after a failure: it may lack memory, and nobody would own the allocation yet.
  if (code != CUDA_SUCCESS) cuda.check(code, fmt::format("cuMemHostAlloc of {} bytes", bytes));
  return address;
}

CUmodule load(const Cuda& cuda, const KernelImage& image) {
  std::string log;
  CUmodule module = nullptr;
  const CUresult code = cuda.retrying([&] {
    log.assign(std::size_t{16} << 10, '\0');
    std::array<CUjit_option, 2> names = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    // The driver reads a number from a pointer's own bits.
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(log.size())};
    return cuda.driver().cuModuleLoadDataEx(&module, image.code.data(), names.size(), names.data(), values.data());
  });
  if (code == CUDA_SUCCESS) return module;
  log.resize(std::strlen(log.c_str()));
  while (!log.empty() && (log.back() == '\n' || log.back() == ' ')) log.pop_back();
  throw CudaFailure(code, {image.form == ImageForm::kPtx ? Errc::kCompile : Errc::kMachine,
                           fmt::format("cuModuleLoadDataEx of {} bytes of {} failed: {}{}{}", image.code.size(),
                                       image.form == ImageForm::kPtx ? "PTX" : "machine code",
                                       describe(cuda.driver(), code), log.empty() ? "" : ": ", log),
                           {}});
}

unsigned sharedBytes(const Cuda& cuda, const KernelLaunch& launch) {
  if (launch.shared_bytes > cuda.limits().shared_bytes_per_block) {
    throw CudaFailure(CUDA_ERROR_INVALID_VALUE,
                      {Errc::kMachine,
                       fmt::format("a launch with {} bytes of shared memory, but a block has at most {}",
                                   launch.shared_bytes, cuda.limits().shared_bytes_per_block),
                       {}});
  }
  return static_cast<unsigned>(launch.shared_bytes);
}

// The driver takes the addresses without const, and only reads them.
void** argumentsOf(const KernelLaunch& launch) { return const_cast<void**>(launch.arguments.data()); }

CUDA_KERNEL_NODE_PARAMS nodeOf(const Cuda& cuda, const KernelLaunch& launch) {
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = launch.kernel;
  node.gridDimX = launch.grid_x;
  node.gridDimY = launch.grid_y;
  node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
  node.blockDimX = launch.block_threads;
  node.sharedMemBytes = sharedBytes(cuda, launch);
  node.kernelParams = argumentsOf(launch);
  return node;
}

}  // namespace

Event::Event(std::shared_ptr<const Cuda> cuda, bool has_timing)
    : handle_(cuda, "cuEventCreate", [&](CUevent* event) {
        const unsigned flags = CU_EVENT_BLOCKING_SYNC | (has_timing ? 0 : CU_EVENT_DISABLE_TIMING);
        return cuda->driver().cuEventCreate(event, flags);
      }) {}

bool Event::ready() const {
  const CurrentContext current(*handle_.cuda());
  const CUresult code = handle_.cuda()->driver().cuEventQuery(get());
  if (code == CUDA_ERROR_NOT_READY) return false;
  handle_.cuda()->check(code, "cuEventQuery");
  return true;
}

void Event::synchronize() const {
  const CurrentContext current(*handle_.cuda());
  handle_.cuda()->check(handle_.cuda()->driver().cuEventSynchronize(get()), "cuEventSynchronize");
}

double Event::secondsSince(const Event& start) const {
  float milliseconds = 0;
  const Cuda& cuda = *handle_.cuda();
  cuda.check(cuda.driver().cuEventElapsedTime(&milliseconds, start.get(), get()), "cuEventElapsedTime");
  return double{milliseconds} * 1e-3;
}

Stream::Stream(std::shared_ptr<const Cuda> cuda)
    : handle_(cuda, "cuStreamCreate",
              [&](CUstream* stream) { return cuda->driver().cuStreamCreate(stream, CU_STREAM_NON_BLOCKING); }) {}

void BorrowedStream::launch(const KernelLaunch& launch) const {
  cuda_.checkLaunch(
      cuda_.driver().cuLaunchKernel(launch.kernel, launch.grid_x, launch.grid_y, 1, launch.block_threads, 1, 1,
                                    sharedBytes(cuda_, launch), stream_, argumentsOf(launch), nullptr),
      "cuLaunchKernel");
}

void BorrowedStream::fill(CUdeviceptr to, unsigned char value, std::size_t bytes) const {
  if (bytes > 0) cuda_.check(cuda_.driver().cuMemsetD8Async(to, value, bytes, stream_), "cuMemsetD8Async");
}

void Stream::copyToDevice(CUdeviceptr to, const void* from, std::size_t bytes) const {
  if (bytes > 0) cuda()->check(cuda()->driver().cuMemcpyHtoDAsync(to, from, bytes, get()), "cuMemcpyHtoDAsync");
}

void Stream::copyToHost(void* to, CUdeviceptr from, std::size_t bytes) const {
  if (bytes > 0) cuda()->check(cuda()->driver().cuMemcpyDtoHAsync(to, from, bytes, get()), "cuMemcpyDtoHAsync");
}

void Stream::copyBytes(const CopyEnd& to, const CopyEnd& from, std::size_t bytes) const {
  if (to.on_host) return copyToHost(to.onHost(), from.address, bytes);
  if (from.on_host) return copyToDevice(to.address, from.onHost(), bytes);
  cuda()->check(cuda()->driver().cuMemcpyDtoDAsync(to.address, from.address, bytes, get()), "cuMemcpyDtoDAsync");
}

void Stream::copyRows(const CopyEnd& to, const CopyEnd& from, std::size_t bytes, std::size_t rows) const {
  if (bytes == 0 || rows == 0) return;
  if (rows == 1 || (to.pitch == bytes && from.pitch == bytes)) return copyBytes(to, from, bytes * rows);
  if (std::max(to.pitch, from.pitch) > cuda()->limits().max_pitch) {
    for (std::size_t row = 0; row < rows; ++row) copyBytes(to + row * to.pitch, from + row * from.pitch, bytes);
    return;
  }
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = from.on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  copy.dstMemoryType = to.on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  if (from.on_host) copy.srcHost = from.onHost();
  if (to.on_host) copy.dstHost = to.onHost();
  if (!from.on_host) copy.srcDevice = from.address;
  if (!to.on_host) copy.dstDevice = to.address;
  copy.srcPitch = from.pitch;
  copy.dstPitch = to.pitch;
  copy.WidthInBytes = bytes;
  copy.Height = rows;
  cuda()->check(cuda()->driver().cuMemcpy2DAsync(&copy, get()), "cuMemcpy2DAsync");
}

void Stream::record(const Event& event) const {
  cuda()->check(cuda()->driver().cuEventRecord(event.get(), get()), "cuEventRecord");
}

void Stream::wait(const Event& event) const {
  cuda()->check(cuda()->driver().cuStreamWaitEvent(get(), event.get(), 0), "cuStreamWaitEvent");
}

void Stream::synchronize() const {
  const CurrentContext current(*cuda());
  cuda()->check(cuda()->driver().cuStreamSynchronize(get()), "cuStreamSynchronize");
}

void Stream::complete(const std::function<void()>& copies) const {
  try {
    copies();
    synchronize();
  } catch (...) {
    settle();
    throw;
  }
}

void Stream::settle() const noexcept {
  const CurrentContext current(*cuda(), std::nothrow);
  cuda()->driver().cuStreamSynchronize(get());
}

DeviceBuffer::DeviceBuffer(std::shared_ptr<const Stream> stream, std::size_t bytes)
    : stream_(std::move(stream)), bytes_(bytes) {
  if (bytes == 0) return;
  const Cuda& cuda = *stream_->cuda();
  const CUresult code = cuda.retrying(
      [&] { return cuda.driver().cuMemAllocFromPoolAsync(&address_, bytes, cuda.pool(), stream_->get()); },
      stream_->get());
  if (code == CUDA_ERROR_OUT_OF_MEMORY) {
    throw CudaFailure(code, {Errc::kMachine,
                             fmt::format("out of device memory: {} bytes wanted, {} of {} bytes free", bytes,
                                         cuda.freeMemory(), cuda.limits().memory_bytes),
                             {}});
  }
  cuda.check(code, "cuMemAllocFromPoolAsync");
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : stream_(std::move(other.stream_)),
      address_(std::exchange(other.address_, 0)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(stream_, other.stream_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (address_ == 0 || stream_->cuda()->isForked()) return;
  const CurrentContext current(*stream_->cuda(), std::nothrow);
  stream_->cuda()->driver().cuMemFreeAsync(address_, stream_->get());
}

PinnedBuffer::PinnedBuffer(std::shared_ptr<const Cuda> cuda, std::size_t bytes)
    : handle_(cuda, allocatePinned(*cuda, bytes)), bytes_(bytes) {}

PinnedRegion::PinnedRegion(std::shared_ptr<const Cuda> cuda, void* data, std::size_t bytes) {
  if (bytes == 0) return;
  const CUresult code = cuda->retrying([&] { return cuda->driver().cuMemHostRegister(data, bytes, 0); });
  if (code != CUDA_SUCCESS) cuda->check(code, fmt::format("cuMemHostRegister of {} bytes", bytes));
  handle_ = {cuda, data};
}

void Kernel::allowSharedBytes(std::size_t bytes) const {
  if (bytes <= kFreeSharedBytes) return;
  const int limit = static_cast<int>(std::min<std::size_t>(bytes, std::numeric_limits<int>::max()));
  cuda_->check(cuda_->driver().cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, limit),
               fmt::format("cuFuncSetAttribute of {}, {} bytes of shared memory,", facts_.name, bytes));
}

Module::Module(std::shared_ptr<const Cuda> cuda, const KernelImage& image) : handle_(cuda, load(*cuda, image)) {}

Kernel Module::kernel(const std::string& name) const {
  const CurrentContext current(*handle_.cuda());
  Kernel kernel;
  kernel.cuda_ = handle_.cuda().get();
  const Driver& driver = kernel.cuda_->driver();
  // The driver may load a kernel's code only now.
  kernel.cuda_->check(kernel.cuda_->retrying(
                          [&] { return driver.cuModuleGetFunction(&kernel.function_, handle_.get(), name.c_str()); }),
                      fmt::format("cuModuleGetFunction of {}", name));
  const auto attribute = [&](CUfunction_attribute which) {
    int value = 0;
    kernel.cuda_->check(driver.cuFuncGetAttribute(&value, which, kernel.function_), "cuFuncGetAttribute");
    return static_cast<unsigned>(std::max(value, 0));
  };
  kernel.facts_.name = name;
  kernel.facts_.registers = attribute(CU_FUNC_ATTRIBUTE_NUM_REGS);
  kernel.facts_.stack_bytes = attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  kernel.static_shared_bytes_ = attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  return kernel;
}

Graph::Graph(std::shared_ptr<const Cuda> cuda)
    : graph_(cuda, "cuGraphCreate", [&](CUgraph* graph) { return cuda->driver().cuGraphCreate(graph, 0); }) {}

void Graph::add(const KernelLaunch& launch) {
  const Cuda& cuda = *graph_.cuda();
  const CUDA_KERNEL_NODE_PARAMS parameters = nodeOf(cuda, launch);
  CUgraphNode node = nullptr;
  cuda.check(cuda.driver().cuGraphAddKernelNode(&node, graph_.get(), nullptr, 0, &parameters), "cuGraphAddKernelNode");
}

void Graph::instantiate() {
  const Cuda& cuda = *graph_.cuda();
  CUgraphExec executable = nullptr;
  cuda.check(cuda.retrying([&] { return cuda.driver().cuGraphInstantiateWithFlags(&executable, graph_.get(), 0); }),
             "cuGraphInstantiateWithFlags");
  executable_ = {graph_.cuda(), executable};
}

void Graph::launch(const Stream& stream) const {
  const Cuda& cuda = *graph_.cuda();
  cuda.checkLaunch(cuda.driver().cuGraphLaunch(executable_.get(), stream.get()), "cuGraphLaunch");
}

}  // namespace srjit
