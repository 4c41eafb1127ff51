// Values of subtrees in the memory of a device: the spare columns of one data set, and the kernels that fill them.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/device_run.h"
#include "runtime/kept_subtrees.h"

namespace srjit {

/// Thread-safe. Belongs to the data set, which it must not outlive; its destructor waits for its kernels.
class DeviceSubtrees {
 public:
  DeviceSubtrees(std::shared_ptr<DeviceQueue> queue, std::shared_ptr<KernelStore> store,
                 std::shared_ptr<KeptSubtrees> kept)
      : queue_(std::move(queue)), store_(std::move(store)), kept_(std::move(kept)) {}
  ~DeviceSubtrees();

  /// Whether programs of this queue may read the columns, which are filled in its order.
  bool belongsTo(const DeviceQueue& queue) const noexcept { return queue_.get() == &queue; }
  const std::shared_ptr<KeptSubtrees>& kept() const noexcept { return kept_; }

  /// Puts the kernels on the stream that compute what is worth keeping now; where that fails, less is kept. In parallel
  /// on the calling thread's arena. `data` is the data set.
  void update(const Dataset::State& data, unsigned threads);

 private:
  std::vector<bool> write(const Dataset::State& data, std::span<const SubtreeWrite> writes, unsigned threads);

  std::shared_ptr<DeviceQueue> queue_;
  std::shared_ptr<KernelStore> store_;
  std::shared_ptr<KeptSubtrees> kept_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<DeviceRun>> runs_;  ///< that may not be done
};

}  // namespace srjit
