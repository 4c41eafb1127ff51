// The stack interpreter with common subtrees evaluated once per step, into device memory.
#include <algorithm>

#include "tools/bench/baselines/designs/stack_interpreter.h"
#include "tools/bench/baselines/designs/subtree_cache.h"
#include "tools/bench/baselines/device.h"

namespace srjit {
namespace {

constexpr std::size_t kCacheBytes = std::size_t{16} << 30;

class CacheBaseline final : public DeviceBaseline {
 public:
  CacheBaseline(std::shared_ptr<const Cuda> device, const BaselineData& data)
      : DeviceBaseline(std::move(device), data), interpreter_([this] {
          const CurrentContext current(*cuda());
          return StackInterpreter(cuda());
        }()) {}

 private:
  void build(std::span<const Expression> expressions) override {
    cache_ = {};
    const std::size_t column_bytes = rows() * sizeof(float);
    const std::size_t budget = std::min(kCacheBytes, cuda()->freeMemory() / 4);
    const CachePlan plan = planSubtreeCache(expressions, budget / column_bytes);
    cached_ = plan.cached;
    cache_ = allocate(cached_ * column_bytes);
    tokens_ = upload(plan.programs.tokens);
    offsets_ = upload(plan.programs.offsets);
  }

  void launchShared() override { interpret(0, cached_, 0, cache_.address()); }

  void launch(std::size_t first, std::size_t count, CUdeviceptr target, CUdeviceptr out) override {
    interpret(cached_ + first, count, target, out);
  }

  void interpret(std::size_t first, std::size_t count, CUdeviceptr target, CUdeviceptr out) const {
    interpreter_.launch(stream(), {columns(), cache_.address(), parameters(), rows()},
                        {tokens_.address(), offsets_.address()}, first, count, false, target, out);
  }

  StackInterpreter interpreter_;
  std::size_t cached_ = 0;
  DeviceBuffer cache_, tokens_, offsets_;
};

}  // namespace

std::unique_ptr<Baseline> makeCacheBaseline(std::shared_ptr<const Cuda> cuda, const BaselineData& data) {
  return std::make_unique<CacheBaseline>(std::move(cuda), data);
}

}  // namespace srjit
