// A CUDA driver for tests: memory of the host, kernels by models (kernels.h), cubins of the direct tier on a
// model of a warp (direct_code.h), failures on demand.
//
// One FakeDriver may exist at a time. What real hardware would let pass, or only sometimes punish, is a problem here
// and fails the test when the FakeDriver ends: an access outside of an allocation or after its end, a copy whose pinned
// memory is gone, freeing twice, a launch that breaks its kernel's contract, anything left alive. Calls that need a
// current context fail without one. Device memory is never at an address of the host, is filled with NaNs when it is
// allocated, and no address is used twice. Kernels of a graph run last to first. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/cuda/driver.h"
#include "tests/gpu_model/direct_code.h"

namespace srjit {

struct FakeDevice {
  std::string name = "Fake H200";
  unsigned capability = 90;
  std::size_t memory_bytes = std::size_t{1} << 30;  ///< the host's memory is only taken as it is allocated
  unsigned multiprocessors = 4;
  std::size_t shared_bytes_per_multiprocessor = std::size_t{228} << 10;
  std::size_t shared_bytes_per_block = std::size_t{227} << 10;
  std::size_t max_pitch = (std::size_t{1} << 31) - 1;
  bool has_pools = true;
};

struct FakeOptions {
  std::vector<FakeDevice> devices = {FakeDevice{}};
  int version = 13000;                 ///< entries of driver.def that are newer are missing
  std::set<std::string> missing = {};  ///< and these
  /// Work of a stream waits until somebody asks for it: synchronises with the stream or one of its events (the first
  /// query of an event says "not ready", and does the work), or waits for it in another stream that is asked for. So
  /// work that was not waited for was not done. Without it, work is done when it is put into a stream.
  bool lag = false;
  /// With lag: kernels run as soon as they are put into a stream, with what is before them there. So a kernel that
  /// overwrites what a copy in another stream was to read, and does not wait for it, spoils that copy.
  bool eager_kernels = false;
};

struct FakeCall {
  std::string_view entry;
  std::uint64_t stream = 0;  ///< a number that tells streams apart; 0 where none takes part
  std::size_t bytes = 0;     ///< of copies and allocations
  std::string detail;        ///< of launches: the kernel; of modules: their first one; of graphs: the number of kernels
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

  /// What loadDriver() would give.
  Result<std::shared_ptr<const Driver>> load() const;

  /// The n-th call of `entry` from now on (the next is 1) fails with `code` and does nothing, unless it frees
  /// something.
  void failAt(std::string_view entry, std::size_t n, CUresult code);
  /// The n-th kernel that runs from now on fails instead, and the device is lost with `code`.
  void failKernel(std::size_t n, CUresult code);
  /// Code of the direct tier that is loaded from now on is changed before it runs.
  void alterCode(AlterCode alter);
  /// Every later call in a context fails with `code`.
  void loseDevice(CUresult code = CUDA_ERROR_ILLEGAL_ADDRESS);
  /// Memory of every device that another process has.
  void occupy(std::size_t bytes);

  std::vector<FakeCall> calls() const;
  std::size_t count(std::string_view entry) const;
  void forgetCalls();
  /// Bytes that are allocated on a device now, and the most that were at once.
  std::size_t usedBytes(int device = 0) const;
  std::size_t peakBytes(int device = 0) const;

  /// Device memory of somebody else in the process, as of another library.
  CUdeviceptr allocateForeign(std::span<const std::byte> contents, int device = 0);
  std::vector<std::byte> readForeign(CUdeviceptr address, std::size_t bytes) const;
  void freeForeign(CUdeviceptr address);

  /// The problems so far, which are forgotten: for tests that expect them.
  std::vector<std::string> takeProblems();

 private:
  std::unique_ptr<FakeState> state_;
};

}  // namespace srjit
