// The direct tier proves itself before it is used: NVIDIA documents neither its instructions nor its images, so what
// was true of one card and driver need not be true of the next.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "ir/error.h"
#include "runtime/device_queue.h"
#include "runtime/kernel_cache.h"
#include "runtime/kernel_store.h"

namespace srjit {

/// Whether direct code gives the interpreter's bits on this device with this driver: for all operators that the tier
/// has, alone and within each other, on special and random numbers, predictions and losses. Proved once, at first
/// need; the answer is kept beside the kernels, for this device, driver and build of the library. So is that a proof
/// was begun: code that the device does not understand may take the process with it, and the next process must not try
/// again. Thread-safe.
class DirectProof {
 public:
  DirectProof(std::shared_ptr<DeviceQueue> queue, std::shared_ptr<KernelStore> store,
              std::shared_ptr<KernelCache> cache, unsigned threads);

  /// Why direct code is not to be used, as far as that is known without a proof: no such code for the device, the
  /// precision, or a proof that failed. Nothing if it was proved.
  std::optional<Error> known() const;
  /// Whether nothing is known yet, so that fault() would have to prove it.
  bool isOpen() const;
  /// The same, after a proof if there was none; others wait meanwhile. An image that the driver refuses is a fault of
  /// the code. Failures of CUDA that say nothing about the code (no memory) are thrown, and the next call tries again;
  /// those that do, but lose the device (an illegal instruction), are kept as a fault and thrown. Needs a current
  /// context; may use the caller's task arena, but runs no other tasks of it.
  std::optional<Error> fault();

  /// Under which name the cache keeps what is known; empty where the tier has no code. The value is "proved", "open",
  /// "begun " and the seconds since 1970, or what is wrong.
  const std::string& fact() const noexcept { return fact_; }
  /// A proof that was begun longer ago than so many seconds, and has not ended, never will.
  static constexpr long kLongestProof = 60;

 private:
  enum class State { kOpen, kProved, kRefuted };
  void recall(const std::string& known);
  void settle(State state, std::string difference);
  void keep(State state, const std::string& difference);

  std::shared_ptr<DeviceQueue> queue_;
  std::shared_ptr<KernelStore> store_;
  std::shared_ptr<KernelCache> cache_;
  unsigned threads_;
  std::string fact_;
  std::mutex proving_;
  mutable std::mutex mutex_;
  State state_ = State::kOpen;
  std::optional<Error> fault_;
};

}  // namespace srjit
