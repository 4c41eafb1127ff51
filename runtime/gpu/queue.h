// What all work of one engine on a GPU shares: a device, its streams, and reusable memory.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/cuda/handles.h"

namespace srjit {

/// Pinned memory that is given back when it is no longer used, since the driver takes a fraction of a millisecond to
/// pin new memory. Sizes are powers of two; idle memory is bounded. Thread-safe; taking needs a current context.
class PinnedPool {
 public:
  explicit PinnedPool(std::shared_ptr<const Cuda> cuda);

  /// A buffer of at least so many bytes; goes back to the pool with its last owner. Null for 0 bytes. Throws
  /// CudaFailure.
  std::shared_ptr<PinnedBuffer> take(std::size_t bytes) const;
  /// Frees idle memory.
  void clear() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

class QueueLock;

/// A device as an engine uses it. Kernels and small copies go to one stream, in the order of submission. A thread that
/// puts an evaluation's work there holds a QueueLock, so that the work of two evaluations is not mixed.
struct DeviceQueue {
  /// `device_name` is for the trace.
  explicit DeviceQueue(std::shared_ptr<const Cuda> device, std::string device_name = {})
      : cuda(std::move(device)),
        name(std::move(device_name)),
        stream(std::make_shared<const Stream>(cuda)),
        copies(std::make_shared<const Stream>(cuda)),
        downloads(std::make_shared<const Stream>(cuda)),
        uploads(std::make_shared<const Stream>(cuda)),
        pinned(cuda) {}

  /// When the host's clock showed what the device's did: at an event of `stream`, for the trace.
  using ClockPair = std::pair<Event, std::chrono::steady_clock::time_point>;
  /// A pair that is not older than `oldest`, and of the last seconds, since the driver gives the time between events in
  /// single precision. Now and then it waits for the stream. Throws CudaFailure, std::bad_alloc.
  std::shared_ptr<const ClockPair> clocks(const QueueLock& lock, std::chrono::steady_clock::time_point oldest);

  std::shared_ptr<const Cuda> cuda;
  const std::string name;
  std::shared_ptr<const Stream> stream;
  std::shared_ptr<const Stream> copies;     ///< of streamed rows
  std::shared_ptr<const Stream> downloads;  ///< of predictions
  /// Of data and code, which are complete when the call that makes them returns. What is allocated here is kept by
  /// evaluations until they are done.
  std::shared_ptr<const Stream> uploads;
  PinnedPool pinned;

 private:
  friend class QueueLock;
  std::mutex mutex_;
  std::shared_ptr<const ClockPair> clocks_;
};

/// The right to put work on a queue's stream, for as long as this exists. Functions that need it take a reference.
class [[nodiscard]] QueueLock {
 public:
  explicit QueueLock(DeviceQueue& queue) : lock_(queue.mutex_) {}

 private:
  const std::lock_guard<std::mutex> lock_;
};

}  // namespace srjit
