#include "runtime/tiers/direct_self_test.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <tbb/task_arena.h>

#include "runtime/code/makers.h"

namespace srjit {
namespace {

// Stored values; caches of earlier builds hold them.
constexpr const char* kPassed = "proved";
constexpr const char* kOpen = "open";

std::string factOf(const DeviceLimits& limits, Precision precision, Math math, std::string_view identity) {
  return fmt::format("direct tier of {} ({}) {} {} {}", limits.name, limits.driver_build, nameOf(precision),
                     nameOf(math), identity);
}

/// Failures that the code of a kernel cannot cause.
bool isUnrelated(CUresult code) {
  constexpr std::array kUnrelated = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_NO_DEVICE};
  return std::ranges::find(kUnrelated, code) != kUnrelated.end();
}

/// Whether the device still works.
bool responds(const DeviceQueue& queue) {
  try {
    queue.stream->synchronize();
    return true;
  } catch (const CudaFailure&) {
    return false;
  }
}

}  // namespace

DirectSelfTest::DirectSelfTest(std::shared_ptr<KernelStore> store, unsigned threads)
    : store_(std::move(store)), threads_(threads) {
  const DeviceLimits& limits = store_->queue().cuda->limits();
  if (!hasDirectTier(limits)) {
    state_ = SelfTestState::kFailed;
    failure_ = Error{Errc::kUnsupported, fmt::format("no direct tier for sm_{}", limits.capability), {}};
    return;
  }
  fact_ = factOf(limits, store_->precision(), store_->math(), store_->identity());
  if (const auto stored = store_->cache()->readFact(fact_)) settle(*stored);
}

std::pair<bool, std::string> DirectSelfTest::lastResult(KernelCache& cache, const DeviceLimits& limits,
                                                        Precision precision, Math math, std::string_view identity) {
  const std::string stored = cache.readFact(factOf(limits, precision, math, identity)).value_or(kOpen);
  if (stored == kOpen) return {false, "not run yet"};
  if (stored == kPassed) return {false, "passed"};
  return {true, stored};
}

/// `result` is a stored value.
void DirectSelfTest::settle(const std::string& result) {
  if (result == kOpen) return;
  const std::lock_guard lock(mutex_);
  state_ = result == kPassed ? SelfTestState::kPassed : SelfTestState::kFailed;
  if (state_ == SelfTestState::kPassed) return;
  failure_ = Error{Errc::kUnsupported,
                   "the direct tier is off: its code failed the comparison with the interpreter's on this device and "
                   "driver (" +
                       result + ")",
                   {}};
}

void DirectSelfTest::keep(const std::string& result) {
  store_->cache()->writeFact(fact_, result);
  settle(result);
}

SelfTestState DirectSelfTest::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::optional<Error> DirectSelfTest::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<Error> DirectSelfTest::ensure(const std::atomic<bool>& cancelled) {
  const std::lock_guard running(running_);
  if (!isOpen()) return failure();
  Error busy{Errc::kUnsupported, "another process is comparing the direct tier with the interpreter", {}};
  if (busy_ && busy_->seconds() < kPatienceSeconds) return busy;
  const Stopwatch waiting;
  auto lock = store_->cache()->lock(fact_, [&] { return cancelled || waiting.seconds() > kPatienceSeconds; });
  if (!lock) {
    if (!cancelled) busy_.emplace();
    return busy;
  }
  if (const auto stored = store_->cache()->readFact(fact_)) settle(*stored);
  if (isOpen() && lock->marks() < kMaxCrashes) return run(*lock, cancelled);
  lock->unmark();
  if (isOpen()) keep(fmt::format("{} processes ended during the test", kMaxCrashes));
  return failure();
}

std::optional<Error> DirectSelfTest::run(FileLock& lock, const std::atomic<bool>& cancelled) {
  bool begun = false;
  const auto begin = [&] {
    lock.mark();
    begun = true;
  };
  const auto end = [&](const std::string& result) {
    lock.unmark();  // which needs no memory
    keep(result);
  };
  try {
    // Another task of the arena may need the result. A thread that ran it here would wait for itself.
    auto difference =
        tbb::this_task_arena::isolate([&] { return compareDirectCode(store_, threads_, begin, cancelled); });
    if (!difference) {
      end(kOpen);
      return std::move(difference).error();
    }
    end(difference->empty() ? kPassed : *difference);
  } catch (const CudaFailure& failed) {
    const bool unrelated = !begun || isUnrelated(failed.code());
    end(unrelated ? kOpen : failed.error().message);
    if (unrelated || !responds(store_->queue())) throw;
  } catch (...) {
    end(kOpen);
    throw;
  }
  return failure();
}

}  // namespace srjit
