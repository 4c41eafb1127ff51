#include "runtime/gpu/queue.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace srjit {
namespace {

constexpr std::size_t kMaxIdleBytes = std::size_t{512} << 20;
constexpr std::chrono::seconds kClocksFor{10};  // in which single precision tells microseconds apart

}  // namespace

struct PinnedPool::Shared {
  explicit Shared(std::shared_ptr<const Cuda> device) : cuda(std::move(device)) {}

  std::shared_ptr<const Cuda> cuda;
  std::mutex mutex;
  std::multimap<std::size_t, PinnedBuffer> idle;
  std::size_t idle_bytes = 0;
};

PinnedPool::PinnedPool(std::shared_ptr<const Cuda> cuda) : shared_(std::make_shared<Shared>(std::move(cuda))) {}

std::shared_ptr<PinnedBuffer> PinnedPool::take(std::size_t bytes) const {
  if (bytes == 0) return nullptr;
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
  PinnedBuffer buffer;
  {
    const std::lock_guard lock(shared_->mutex);
    if (const auto found = shared_->idle.find(size); found != shared_->idle.end()) {
      buffer = std::move(found->second);
      shared_->idle.erase(found);
      shared_->idle_bytes -= size;
    }
  }
  if (buffer.bytes() == 0) buffer = PinnedBuffer(shared_->cuda, size);
  return {new PinnedBuffer(std::move(buffer)), [shared = shared_](PinnedBuffer* used) {
            const std::unique_ptr<PinnedBuffer> owned(used);
            const std::lock_guard lock(shared->mutex);
            const std::size_t idle_bytes = owned->bytes();
            if (shared->idle_bytes + idle_bytes > kMaxIdleBytes) return;
            try {
              shared->idle.emplace(idle_bytes, std::move(*owned));
              shared->idle_bytes += idle_bytes;
            } catch (const std::bad_alloc&) {
              return;  // and it is freed
            }
          }};
}

void PinnedPool::clear() const {
  std::multimap<std::size_t, PinnedBuffer> idle;
  const std::lock_guard lock(shared_->mutex);
  std::swap(idle, shared_->idle);
  shared_->idle_bytes = 0;
}

std::shared_ptr<const DeviceQueue::ClockPair> DeviceQueue::clocks(const QueueLock&,
                                                                  std::chrono::steady_clock::time_point oldest) {
  const auto least = std::max(oldest, std::chrono::steady_clock::now() - kClocksFor);
  if (clocks_ == nullptr || clocks_->second < least) {
    Event event(cuda, true);
    stream->record(event);
    stream->synchronize();
    clocks_ = std::make_shared<const ClockPair>(std::move(event), std::chrono::steady_clock::now());
  }
  return clocks_;
}

}  // namespace srjit
