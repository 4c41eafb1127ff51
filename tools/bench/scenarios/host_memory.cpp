#include "tools/bench/scenarios/host_memory.h"

#include "runtime/platform/clock.h"

namespace srjit {
namespace {

std::shared_ptr<const Cuda> openDevice(const BenchContext& context) {
  return must(Cuda::open(must(loadDriver()), static_cast<int>(context.ordinal())));
}

}  // namespace

HostMatrix::HostMatrix(const BenchContext& context, std::size_t values, bool pinned) {
  if (!pinned) {
    pageable_.resize(values);
    values_ = pageable_;
    return;
  }
  const std::shared_ptr<const Cuda> cuda = openDevice(context);
  const CurrentContext current(*cuda);
  pinned_ = PinnedBuffer(cuda, values * sizeof(float));
  values_ = pinned_.as<float>();
}

std::vector<double> pinnedCopySeconds(const BenchContext& context, std::size_t bytes) {
  const std::shared_ptr<const Cuda> cuda = openDevice(context);
  const CurrentContext current(*cuda);
  const auto stream = std::make_shared<const Stream>(cuda);
  const DeviceBuffer from(stream, bytes);
  const PinnedBuffer to(cuda, bytes);
  const auto copy = [&] {
    const Stopwatch watch;
    stream->copyToHost(to.data(), from.address(), bytes);
    stream->synchronize();
    return watch.seconds();
  };
  copy();
  return context.sample(9, 1, copy);
}

}  // namespace srjit
