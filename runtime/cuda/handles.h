// Owners of the CUDA driver's objects. Each keeps a reference to its device, frees what it owns in its destructor, and
// throws CudaFailure where a call fails.
//
// Unless said otherwise, constructors and member functions need the device's context to be current on the calling
// thread: hold a CurrentContext. Destructors and moves do not; they never throw, run on any thread, may run after the
// device was lost, and free nothing in the child of a fork(). Objects are not thread-safe, except Cuda and functions
// that say so.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/kernels/image_maker.h"
#include "compiler/nvptx/options.h"
#include "runtime/cuda/context.h"

namespace srjit {

/// A point in a stream's work.
class Event {
 public:
  explicit Event(std::shared_ptr<const Cuda> cuda, bool has_timing = false);

  CUevent get() const noexcept { return handle_.get(); }
  /// Whether all work before the event was done; true of an event that was never recorded. Errors of that work appear
  /// here and in synchronize(). Thread-safe.
  bool ready() const;
  /// Waits, without a busy loop, until ready(). Thread-safe.
  void synchronize() const;
  /// Seconds from `start` to this event; both have timing, and are recorded and ready.
  double secondsSince(const Event& start) const;

 private:
  CudaHandle<CUevent, &Driver::cuEventDestroy> handle_;
};

/// Blocks of a launch at most (CUDA C++ programming guide, 13.0).
inline constexpr unsigned kMaxGridX = (1U << 31) - 1, kMaxGridY = 65'535;

/// The shape of a launch and the addresses of its arguments, which the driver copies before the call returns.
struct KernelLaunch {
  CUfunction kernel = nullptr;
  unsigned grid_x = 1, grid_y = 1;  ///< blocks, up to kMaxGridX and kMaxGridY
  unsigned block_threads = kBlockThreads;
  std::size_t shared_bytes = 0;
  std::span<void* const> arguments = {};
};

/// The addresses of values that are a kernel's arguments, in its order; their types must have its parameters' sizes.
template <class... T>
std::array<void*, sizeof...(T)> addressesOf(T&... values) noexcept {
  return {const_cast<void*>(static_cast<const void*>(&values))...};
}

/// One end of a copy: runs of bytes begin `pitch` bytes after one another, on the host or on the device.
struct CopyEnd {
  CopyEnd(CUdeviceptr device, std::size_t bytes) : address(device), pitch(bytes), on_host(false) {}
  CopyEnd(const void* host, std::size_t bytes)
      : address(reinterpret_cast<CUdeviceptr>(host)), pitch(bytes), on_host(true) {}
  /// The same end, `bytes` bytes later.
  CopyEnd operator+(std::size_t bytes) const noexcept {
    CopyEnd moved = *this;
    moved.address += bytes;
    return moved;
  }

  /// Of an end on the host.
  std::byte* onHost() const noexcept { return reinterpret_cast<std::byte*>(address); }  // NOLINT: one address space

  CUdeviceptr address;
  std::size_t pitch;
  bool on_host;
};

/// A stream of another owner. It takes only kernels and fills, which a graph can capture.
class BorrowedStream {
 public:
  /// Both must outlive it. `stream` 0 is the legacy default stream.
  BorrowedStream(const Cuda& cuda, CUstream stream) : cuda_(cuda), stream_(stream) {}

  void launch(const KernelLaunch& launch) const;
  void fill(CUdeviceptr to, unsigned char value, std::size_t bytes) const;

 private:
  const Cuda& cuda_;
  CUstream stream_;
};

/// A queue of work, which begins in order; it does not wait for the legacy default stream. Host memory of copies must
/// stay until they are done, and be pinned if they are to run asynchronously.
class Stream {
 public:
  explicit Stream(std::shared_ptr<const Cuda> cuda);

  CUstream get() const noexcept { return handle_.get(); }
  const std::shared_ptr<const Cuda>& cuda() const noexcept { return handle_.cuda(); }
  BorrowedStream borrowed() const { return {*cuda(), get()}; }
  void launch(const KernelLaunch& launch) const { borrowed().launch(launch); }
  void copyToDevice(CUdeviceptr to, const void* from, std::size_t bytes) const;
  void copyToHost(void* to, CUdeviceptr from, std::size_t bytes) const;
  /// Copies `rows` runs of `bytes` bytes each; at most one end is on the host. One call of the driver, or one for each
  /// run where a pitch is beyond the device's limit.
  void copyRows(const CopyEnd& to, const CopyEnd& from, std::size_t bytes, std::size_t rows) const;
  void fill(CUdeviceptr to, unsigned char value, std::size_t bytes) const { borrowed().fill(to, value, bytes); }
  void record(const Event& event) const;
  /// Work put here from now on waits for the event.
  void wait(const Event& event) const;
  /// Waits until all work here is done. Its errors appear here. Thread-safe.
  void synchronize() const;
  /// Calls `copies`, which puts work here, and waits, even if it throws: memory that the work uses may then be freed.
  void complete(const std::function<void()>& copies) const;
  /// Waits, after a failure. If this wait fails, too, the device is lost and uses nothing any more.
  void settle() const noexcept;

 private:
  void copyBytes(const CopyEnd& to, const CopyEnd& from, std::size_t bytes) const;

  CudaHandle<CUstream, &Driver::cuStreamDestroy> handle_;
};

/// Device memory, 256-byte aligned, allocated and freed in the order of a stream: work of that stream may use it as
/// soon as it is constructed, other streams after an event; and it may be freed once the last work that uses it was put
/// into that stream, done or not. Not cleared. No memory for 0 bytes.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// Errors: CudaFailure; for lack of memory, as for all owners here after Cuda::retrying(), with
  /// CUDA_ERROR_OUT_OF_MEMORY and "out of device memory: N bytes wanted, M of T bytes free".
  DeviceBuffer(std::shared_ptr<const Stream> stream, std::size_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  CUdeviceptr address() const noexcept { return address_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::shared_ptr<const Stream> stream_;
  CUdeviceptr address_ = 0;
  std::size_t bytes_ = 0;
};

/// Host memory that the device copies to and from asynchronously; page-aligned, not cleared. No memory for 0 bytes.
/// May be freed only when the copies are done.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(std::shared_ptr<const Cuda> cuda, std::size_t bytes);

  void* data() const noexcept { return handle_.get(); }
  std::size_t bytes() const noexcept { return bytes_; }
  template <class T>
  std::span<T> as() const noexcept {
    return {static_cast<T*>(data()), bytes_ / sizeof(T)};
  }

 private:
  CudaHandle<void*, &Driver::cuMemFreeHost> handle_;
  std::size_t bytes_ = 0;
};

/// Bytes of dynamic shared memory that every kernel may have without allowSharedBytes().
inline constexpr std::size_t kFreeSharedBytes = std::size_t{48} << 10;

/// Pins memory of another owner, which must live at least as long as this.
class PinnedRegion {
 public:
  PinnedRegion() = default;
  PinnedRegion(std::shared_ptr<const Cuda> cuda, void* data, std::size_t bytes);

 private:
  CudaHandle<void*, &Driver::cuMemHostUnregister> handle_;
};

/// A kernel of a loaded module, valid as long as that is. A value; thread-safe, except allowSharedBytes().
class Kernel {
 public:
  Kernel() = default;

  CUfunction get() const noexcept { return function_; }
  /// Facts of the loaded machine code; spills are counted only in stack_bytes.
  const KernelFacts& facts() const noexcept { return facts_; }
  std::size_t staticSharedBytes() const noexcept { return static_shared_bytes_; }
  /// Permits launches with `bytes` of dynamic shared memory; does nothing up to kFreeSharedBytes.
  void allowSharedBytes(std::size_t bytes) const;

 private:
  friend class Module;
  const Cuda* cuda_ = nullptr;
  CUfunction function_ = nullptr;
  KernelFacts facts_;
  std::size_t static_shared_bytes_ = 0;
};

/// A loaded image.
class Module {
 public:
  Module() = default;
  /// Loads a cubin, or has the driver assemble PTX. Errors: CudaFailure with the driver's log.
  Module(std::shared_ptr<const Cuda> cuda, const KernelImage& image);

  /// Errors: CudaFailure with the kernel's name. Thread-safe.
  Kernel kernel(const std::string& name) const;

 private:
  CudaHandle<CUmodule, &Driver::cuModuleUnload> handle_;
};

/// Kernels that do not depend on each other, launched together.
class Graph {
 public:
  Graph() = default;
  explicit Graph(std::shared_ptr<const Cuda> cuda);

  /// Adds a kernel, before instantiate(). Arguments are copied.
  void add(const KernelLaunch& launch);
  void instantiate();
  void launch(const Stream& stream) const;

 private:
  CudaHandle<CUgraph, &Driver::cuGraphDestroy> graph_;
  CudaHandle<CUgraphExec, &Driver::cuGraphExecDestroy> executable_;
};

}  // namespace srjit
