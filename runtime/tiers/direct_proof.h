// The direct tier proves itself before it is used: NVIDIA documents neither its instructions nor its images, so what
// was true of one card and driver need not be true of the next.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "ir/error.h"
#include "runtime/cache/kernels.h"
#include "runtime/gpu/kernel_store.h"
#include "runtime/gpu/queue.h"
#include "runtime/platform/clock.h"

namespace srjit {

/// Whether direct code gives the right bits on this device with this driver, as direct_comparison.h says. Proved once
/// for each precision and mode, at first need; the answer is kept beside the kernels, for this device, driver and build
/// of the library, until the cache is cleared. Code that the device does not understand may take the process with it,
/// so the cache's lock of this name is held, and marked as long as direct code may run: after kMostDeaths processes
/// that died so, none tries again. Of processes that share a cache one proves at a time; the others wait for it.
/// Thread-safe.
class DirectProof {
 public:
  /// What is known of a device, for a report.
  struct Standing {
    bool refuted = false;
    std::string text;  ///< "proved", "not compared yet", or why the tier is off
  };
  /// `identity` as KernelStore::identity().
  static Standing standing(KernelCache& cache, const DeviceLimits& limits, Precision precision, Math math,
                           std::string_view identity);

  DirectProof(std::shared_ptr<DeviceQueue> queue, std::shared_ptr<KernelStore> store,
              std::shared_ptr<KernelCache> cache, unsigned threads);

  /// Why direct code is not to be used, as far as that is known without a proof: no such code for the device,
  /// or a proof that failed. Nothing if it was proved.
  std::optional<Error> known() const;
  /// Whether nothing is known yet, so that fault() would have to prove it.
  bool isOpen() const;
  /// The same, after a proof if there was none; others wait meanwhile. A failure of CUDA once direct code is loaded is
  /// a fault of the code, and is thrown, too, if the device was lost with it; failures that the code cannot have caused
  /// (no memory) are thrown, and the next call tries again. Also without a proof: an error of the interpreter's making,
  /// another process that does not come to an end with its own, and `cancelled`. Needs a current context; may use the
  /// caller's task arena, but runs no other tasks of it.
  std::optional<Error> fault(const std::atomic<bool>& cancelled);

  /// Under which name the cache keeps what is known, and its lock; empty where the tier has no code. The value is
  /// "proved", "open", or what is wrong.
  const std::string& fact() const noexcept { return fact_; }
  /// Seconds that another process' proof is waited for; and after that, that it is not asked for again.
  static constexpr double kPatience = 10;
  /// One process may have been killed by chance.
  static constexpr unsigned kMostDeaths = 2;

 private:
  enum class State { kOpen, kProved, kRefuted };
  void recall(const std::string& known);
  std::optional<Error> prove(FileLock& lock, const std::atomic<bool>& cancelled);
  void settle(State state, std::string difference);
  void keep(State state, const std::string& difference);

  std::shared_ptr<DeviceQueue> queue_;
  std::shared_ptr<KernelStore> store_;
  std::shared_ptr<KernelCache> cache_;
  unsigned threads_;
  std::string fact_;
  std::mutex proving_;
  std::optional<Stopwatch> busy_;  ///< since another process was not waited for any longer; under proving_
  mutable std::mutex mutex_;
  State state_ = State::kOpen;
  std::optional<Error> fault_;
};

}  // namespace srjit
