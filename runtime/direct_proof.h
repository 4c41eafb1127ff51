// The direct tier proves itself before it is used: NVIDIA documents neither its instructions nor its images, so what
// was true of one card and driver need not be true of the next.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "ir/error.h"
#include "runtime/device_queue.h"
#include "runtime/kernel_cache.h"
#include "runtime/kernel_store.h"

namespace srjit {

/// Whether direct code gives the interpreter's bits on this device with this driver: for all operators that the tier
/// has, alone and within each other, on special and random numbers, predictions and losses. Proved once, at first
/// need; the answer is kept beside the kernels, for this device, driver and build of the library. Thread-safe.
class DirectProof {
 public:
  DirectProof(std::shared_ptr<DeviceQueue> queue, std::shared_ptr<KernelStore> store,
              std::shared_ptr<KernelCache> cache, unsigned threads);

  /// Why direct code is not to be used, as far as that is known without a proof: no such code for the device, the
  /// precision, or a proof that failed. Nothing if it was proved.
  std::optional<Error> known() const;
  /// Whether nothing is known yet, so that fault() would have to prove it.
  bool isOpen() const;
  /// The same, after a proof if there was none; others wait meanwhile. Errors that say nothing about the code (no
  /// memory, a lost device) are thrown, and the next call tries again. Needs a current context.
  std::optional<Error> fault();

 private:
  enum class State { kOpen, kProved, kRefuted };
  void settle(State state, std::string difference);

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
