// A device and its context, and failures of the CUDA driver as exceptions. Owners of the driver's other objects are in
// runtime/cuda/handles.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/error.h"
#include "runtime/cuda/driver.h"
#include "runtime/platform/process.h"

namespace srjit {

/// A call of the driver that failed.
class CudaFailure : public ErrorException {
 public:
  CudaFailure(CUresult code, Error error) : ErrorException(std::move(error)), code_(code) {}
  CUresult code() const noexcept { return code_; }

 private:
  CUresult code_;
};

/// Throws CudaFailure (kMachine) unless `code` is CUDA_SUCCESS: "`what` failed: " and describe().
void check(const Driver& driver, CUresult code, std::string_view what);

/// The facts of a device.
struct DeviceLimits {
  int ordinal = 0;
  std::string name;         ///< "NVIDIA H200"
  unsigned capability = 0;  ///< 90 for compute capability 9.0
  unsigned multiprocessors = 0;
  std::size_t shared_bytes_per_multiprocessor = 0;
  std::size_t shared_bytes_per_block = 0;  ///< the most a kernel may ask for (Kernel::allowSharedBytes)
  std::size_t memory_bytes = 0;
  std::size_t max_pitch = 0;  ///< bytes between the rows of one two-dimensional copy
  bool has_pools = false;     ///< stream-ordered memory; without it the device is not used
  int driver_version = 0;     ///< CUDA version of the driver, 12040 for 12.4
  std::string driver_build;  ///< tells builds of one version apart: /proc/driver/nvidia/version; empty if there is none
  /// The architecture to make code for: the newest of ptxArchitectures() that the device can run; empty if none. If its
  /// major number is not the device's own, cubins do not run: needs_ptx, which is assembled for the device's own.
  std::string arch;
  bool needs_ptx = false;
};

/// The devices of this machine, in the driver's order. Makes no context. Errors: the driver's.
Result<std::vector<DeviceLimits>> listDevices(const Driver& driver);

/// A device with its primary context, which is retained, and a memory pool of our own, which keeps freed memory for the
/// next allocation. Thread-safe.
class Cuda {
 public:
  /// Errors: kMachine "device cuda:3, but this machine has 1 device", the driver's failures, or kUnsupported for a
  /// device that no code can be made for or that has no memory pools. Needs no current context.
  static Result<std::shared_ptr<const Cuda>> open(std::shared_ptr<const Driver> driver, int ordinal);
  ~Cuda();

  const Driver& driver() const noexcept { return *driver_; }
  const DeviceLimits& limits() const noexcept { return limits_; }
  CUcontext context() const noexcept { return context_; }
  CUmemoryPool pool() const noexcept { return pool_; }

  /// check() of this driver.
  void check(CUresult code, std::string_view what) const { srjit::check(*driver_, code, what); }
  /// check() of a launch, which can need memory for its kernel. The driver may call the lack of it CUDA_ERROR_UNKNOWN
  /// (seen with 580.159.04 on an H200), which counts as CUDA_ERROR_OUT_OF_MEMORY if the device has little left.
  void checkLaunch(CUresult code, std::string_view what) const;
  /// Bytes that an allocation can count on: free on the device, or kept by our pool and not in use.
  std::size_t freeMemory() const;
  /// `reclaim` frees memory, of the device and pinned, that is only kept for later use, and waits until that is done.
  /// retrying() calls it, on any thread.
  void setReclaim(std::function<void()> reclaim) const;
  /// Calls `call`, an entry of the driver that takes memory, and returns its code. If memory is short, frees memory
  /// that is only kept and calls it a second time: setReclaim()'s, the pool's, and memory freed in the order of the
  /// stream `freed_in`, which is waited for. Needs a current context. Throws CudaFailure if freeing fails.
  template <class Call>
  CUresult retrying(const Call& call, CUstream freed_in = nullptr) const {
    const CUresult code = call();
    if (code != CUDA_ERROR_OUT_OF_MEMORY) return code;
    makeRoom(freed_in);
    return call();
  }
  /// Whether this process was forked from the one that opened the device, which it then cannot use.
  bool isForked() const noexcept { return home_.isForked(); }
  /// Whether `address` is memory of this device. Needs no particular context. Throws CudaFailure.
  bool owns(CUdeviceptr address) const;
  /// Whether the driver has pinned all of this host memory, as one piece. Needs no particular context.
  bool isPinned(const void* data, std::size_t bytes) const;

 private:
  Cuda() = default;
  void makeRoom(CUstream freed_in) const;
  Status start(std::shared_ptr<const Driver> driver, int ordinal);

  std::shared_ptr<const Driver> driver_;
  DeviceLimits limits_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmemoryPool pool_ = nullptr;
  HomeProcess home_;
  mutable std::mutex reclaim_mutex_;
  mutable std::function<void()> reclaim_;
};

/// Makes a device's context current on this thread; its destructor makes the previous one current again.
class CurrentContext {
 public:
  explicit CurrentContext(const Cuda& cuda);
  /// For destructors: a failure is ignored; the next call of the driver reports it.
  CurrentContext(const Cuda& cuda, std::nothrow_t) noexcept;
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
  CUcontext previous_ = nullptr;
  bool changed_ = false;
};

/// A handle of the driver with its device; `kDestroy` is the entry that destroys it. Movable.
template <class Handle, CUresult (*Driver::*kDestroy)(Handle)>
class CudaHandle {
 public:
  CudaHandle() = default;
  CudaHandle(std::shared_ptr<const Cuda> cuda, Handle handle) : cuda_(std::move(cuda)), handle_(handle) {}
  /// create(where the handle goes) calls the entry `what`. Throws CudaFailure.
  template <class Create>
  CudaHandle(std::shared_ptr<const Cuda> cuda, std::string_view what, const Create& create) : cuda_(std::move(cuda)) {
    cuda_->check(create(&handle_), what);
  }
  CudaHandle(CudaHandle&& other) noexcept : cuda_(std::move(other.cuda_)), handle_(std::exchange(other.handle_, {})) {}
  CudaHandle& operator=(CudaHandle&& other) noexcept {
    std::swap(cuda_, other.cuda_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~CudaHandle() {
    if (handle_ == Handle{} || cuda_->isForked()) return;
    const CurrentContext current(*cuda_, std::nothrow);
    (cuda_->driver().*kDestroy)(handle_);
  }

  Handle get() const noexcept { return handle_; }
  const std::shared_ptr<const Cuda>& cuda() const noexcept { return cuda_; }

 private:
  std::shared_ptr<const Cuda> cuda_;
  Handle handle_{};
};

}  // namespace srjit
