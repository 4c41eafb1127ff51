// The table of faults.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/cuda/driver.h"
#include "tests/faults/points.h"
#include "tests/gpu_model/fake_driver.h"

namespace srjit {

/// What a scenario uses: which faults it can have. Bits.
enum Uses : unsigned {
  kMemory = 1,      ///< `operator new`
  kGpu = 2,         ///< the driver
  kThreads = 4,     ///< starts threads, if the process has none yet
  kCode = 8,        ///< memory that code runs in: LLVM's for the CPU
  kReads = 16,      ///< reads files
  kLocks = 32,      ///< locks of files
  kFiles = 64,      ///< writes files
  kKernels = 128,   ///< kernels of a GPU run
  kOpens = 256,     ///< opens files
  kNames = 512,     ///< gives files their names
  kCodes = 1024,    ///< the driver's codes are tried one by one, not only those that the library tells apart
  kSyncs = 2048,    ///< synchronises files
  kFolders = 4096,  ///< makes folders
  kMarks = 8192     ///< removes marks of locks
};

/// A kind of fault: at which calls it may be, and what the call gives then.
struct FaultKind {
  std::string_view name;
  unsigned uses;  ///< scenarios that have all of these bits are tried
  enum class Source {
    kPoint,   ///< Injection of `point` and `calls`, with the errno `number`
    kCall,    ///< the n-th call of the driver fails with `code`
    kLost,    ///< the device is lost with `code` in the n-th call of the driver in its context
    kKernel,  ///< the n-th kernel fails, and the device is lost with `code`
  } source;
  PointKind point = PointKind::kAllocation;
  bool is_lasting = false;
  std::span<const std::string_view> calls = {};
  int number = 0;
  CUresult code = CUDA_SUCCESS;
};

std::span<const FaultKind> faultKinds();

/// A fault in one run. The destructor ends it.
class Fault {
 public:
  /// `n` is 0 only to count. `device` is the one that is lost.
  Fault(const FaultKind& kind, std::size_t n, FakeDriver& driver, int device);
  ~Fault();
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

  /// Ends it: no call fails afterwards. A device that was lost remains lost.
  void end();
  /// Calls that counted until end().
  std::size_t points() const { return points_; }
  bool hasHappened() const { return has_happened_; }
  /// Why `message` does not say what failed; empty if it does.
  std::string missingIn(std::string_view message) const;

 private:
  const FaultKind& kind_;
  FakeDriver& driver_;
  int device_;
  bool is_over_ = false, has_happened_ = false;
  std::size_t points_ = 0;
};

}  // namespace srjit
