// A CUDA driver for tests: memory of the host, kernels by models (kernels.h), cubins of the direct tier on a
// model of a warp (direct_code.h), failures on demand.
//
// One FakeDriver may exist at a time. Errors that real hardware may tolerate are problems here and fail the test at the
// end of the FakeDriver: an access outside of an allocation or after its end, a copy whose pinned memory was freed, a
// double free, a launch that violates its kernel's preconditions, leaked objects. Calls that need a current context
// fail without one. Device memory never shares an address with host memory, is filled with NaNs at allocation, and no
// address is used twice. Kernels of a graph run last to first. Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/cuda/driver.h"
#include "tests/gpu_model/direct_code.h"

namespace srjit {

/// Codes of the driver (cuda.h) that the runtime does not name, for failures on demand.
inline constexpr CUresult kNotInitialized = 3, kDeviceUnavailable = 46, kEccUncorrectable = 214;

struct FakeDevice {
  std::string name = "Fake H200";
  unsigned capability = 90;
  std::size_t memory_bytes = std::size_t{1} << 30;  ///< host memory is used only as it is allocated
  unsigned multiprocessors = 4;
  std::size_t shared_bytes_per_multiprocessor = std::size_t{228} << 10;
  std::size_t shared_bytes_per_block = std::size_t{227} << 10;
  std::size_t max_pitch = (std::size_t{1} << 31) - 1;
  bool has_pools = true;
};

struct FakeOptions {
  std::vector<FakeDevice> devices = {FakeDevice{}};
  int version = 13000;                 ///< newer entries of driver.def are missing
  std::set<std::string> missing = {};  ///< further missing entries
  /// Lazy execution: work of a stream runs only when a call synchronises with the stream or one of its events (the
  /// first query of an event returns "not ready" and runs the work), or when a stream that waits for it runs. So a
  /// missing wait shows as work not done. If false, work runs when it is put into a stream.
  bool lag = false;
  /// With lag: kernels, and the work before them in their stream, run when they are put into it. So a kernel that
  /// overwrites the source of a pending copy in another stream without a wait corrupts that copy.
  bool eager_kernels = false;
};

struct FakeCall {
  std::string_view entry;
  std::uint64_t stream = 0;  ///< identifies the stream; 0 for calls without one
  std::size_t bytes = 0;     ///< size of a copy or allocation
  /// Launches: the kernel; modules: their first kernel; graphs: the number of kernels; copies of rows: "in" to the
  /// device, "out" or "inside".
  std::string detail;
  std::thread::id thread = std::this_thread::get_id();
};

struct FakeState;

class FakeDriver {
 public:
  explicit FakeDriver(FakeOptions options = {});
  /// Fails the test for every problem. Drivers that outlive it answer CUDA_ERROR_DEINITIALIZED.
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  /// The replacement of loadDriver().
  Result<std::shared_ptr<const Driver>> load() const;

  /// The n-th call of `entry` from now on (the next is 1) fails with `code` and has no effect, unless it frees
  /// something. An empty `entry` counts the calls of all; with a device, only calls in its context count.
  void failAt(std::string_view entry, std::size_t n, CUresult code, std::optional<int> device = {});
  /// The n-th kernel that runs from now on fails instead, and the device is lost with `code`.
  void failKernel(std::size_t n, CUresult code);
  /// Calls `before` with the number, from 1, of each kernel since forgetCalls(), before it runs. It calls no driver.
  void beforeKernels(std::function<void(std::size_t)> before);
  /// Calls `before` with the number of the context's device before each call of `entry` in a context. The model is not
  /// locked meanwhile: other threads' calls go on, and `before` may wait for them. Replaces the function set before.
  void beforeCalls(std::string_view entry, std::function<void(int device)> before);
  /// Applies `alter` to code of the direct tier that is loaded from now on.
  void alterCode(AlterCode alter);
  /// Every later call in a context of the device, or of any if it is not set, fails with `code`.
  void loseDevice(CUresult code = CUDA_ERROR_ILLEGAL_ADDRESS, std::optional<int> device = {});
  /// The n-th call of `entry` in a context of the device from now on (the next is 1), and every later call there;
  /// of an empty `entry` all calls count.
  void loseAt(int device, std::string_view entry, std::size_t n, CUresult code = CUDA_ERROR_ILLEGAL_ADDRESS);
  /// Whether a call or a kernel has failed because of failAt(), loseAt() or failKernel(); of calls, the last one's
  /// entry.
  bool hasFailed() const;
  std::string failedEntry() const;
  /// Ends what these three planned. Devices that were lost remain lost.
  void forgetFailures();
  /// Kernels that ran, or failed, since forgetCalls().
  std::size_t kernelsRun() const;
  /// Sets the memory of every device that another process uses.
  void occupy(std::size_t bytes);

  std::vector<FakeCall> calls() const;
  std::size_t count(std::string_view entry) const;
  void forgetCalls();
  /// Bytes allocated on a device now, and the peak.
  std::size_t usedBytes(int device = 0) const;
  std::size_t peakBytes(int device = 0) const;

  /// Device memory of another library in the process.
  CUdeviceptr allocateForeign(std::span<const std::byte> contents, int device = 0);
  void freeForeign(CUdeviceptr address);
  /// The current contents: work that lags behind has not run.
  std::vector<std::byte> readForeign(CUdeviceptr address, std::size_t bytes) const;

  /// Returns and clears the problems so far, for tests that expect them.
  std::vector<std::string> takeProblems();

 private:
  struct Locked;
  Locked locked() const;

  std::unique_ptr<FakeState> state_;
};

}  // namespace srjit
