#include "runtime/tiers/direct_proof.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <tbb/task_arena.h>

#include "runtime/gpu/direct.h"
#include "runtime/tiers/direct_comparison.h"

namespace srjit {
namespace {

constexpr const char* kProved = "proved";
constexpr const char* kOpen = "open";

std::string factOf(const DeviceLimits& limits, Precision precision, Math math, std::string_view identity) {
  return fmt::format("direct tier of {} ({}) {} {} {}", limits.name, limits.driver_build, nameOf(precision),
                     nameOf(math), identity);
}

/// Failures that the code of a kernel cannot cause.
bool saysNothing(CUresult code) {
  constexpr std::array kInnocent = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_NO_DEVICE};
  return std::ranges::find(kInnocent, code) != kInnocent.end();
}

/// Whether the device still works.
bool answers(const DeviceQueue& queue) {
  try {
    queue.stream->synchronize();
    return true;
  } catch (const CudaFailure&) {
    return false;
  }
}

}  // namespace

DirectProof::DirectProof(std::shared_ptr<DeviceQueue> queue, std::shared_ptr<KernelStore> store,
                         std::shared_ptr<KernelCache> cache, unsigned threads)
    : queue_(std::move(queue)), store_(std::move(store)), cache_(std::move(cache)), threads_(threads) {
  const DeviceLimits& limits = queue_->cuda->limits();
  if (!hasDirectTier(limits)) {
    state_ = State::kRefuted;
    fault_ = Error{Errc::kUnsupported, fmt::format("no direct tier for sm_{}", limits.capability), {}};
    return;
  }
  fact_ = factOf(limits, store_->precision(), store_->math(), store_->identity());
  if (const auto known = cache_->readFact(fact_)) recall(*known);
}

DirectProof::Standing DirectProof::standing(KernelCache& cache, const DeviceLimits& limits, Precision precision,
                                            Math math, std::string_view identity) {
  const std::string fact = cache.readFact(factOf(limits, precision, math, identity)).value_or(kOpen);
  if (fact == kOpen) return {false, "not compared yet"};
  return {fact != kProved, fact};
}

void DirectProof::recall(const std::string& known) {
  if (known == kOpen) return;
  settle(known == kProved ? State::kProved : State::kRefuted, known);
}

void DirectProof::settle(State state, std::string difference) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  if (state == State::kProved) return;
  fault_ = Error{Errc::kUnsupported,
                 "the direct tier is off: its code failed the comparison with the interpreter's on this device and "
                 "driver (" +
                     std::move(difference) + ")",
                 {}};
}

std::optional<Error> DirectProof::known() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

bool DirectProof::isOpen() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kOpen;
}

std::optional<Error> DirectProof::fault(const std::atomic<bool>& cancelled) {
  const std::lock_guard proving(proving_);
  if (!isOpen()) return known();
  Error busy{Errc::kUnsupported, "another process is comparing the direct tier with the interpreter", {}};
  if (busy_ && busy_->seconds() < kPatience) return busy;
  const Stopwatch waiting;
  auto lock = cache_->lock(fact_, [&] { return cancelled || waiting.seconds() > kPatience; });
  if (!lock) {
    if (!cancelled) busy_.emplace();
    return busy;
  }
  if (const auto fact = cache_->readFact(fact_)) recall(*fact);
  if (isOpen() && lock->marks() < kMostDeaths) return prove(*lock, cancelled);
  lock->unmark();
  if (isOpen()) keep(State::kRefuted, fmt::format("{} processes did not survive it", kMostDeaths));
  return known();
}

std::optional<Error> DirectProof::prove(FileLock& lock, const std::atomic<bool>& cancelled) {
  bool begun = false;
  const auto begin = [&] {
    lock.mark();
    begun = true;
  };
  const auto end = [&](State state, const std::string& difference) {
    lock.unmark();  // which needs no memory
    keep(state, difference);
  };
  try {
    // Other tasks of the arena may need the proof, too, and would wait for it inside of it.
    auto difference =
        tbb::this_task_arena::isolate([&] { return compareDirectCode(queue_, store_, threads_, begin, cancelled); });
    if (!difference) {
      end(State::kOpen, {});
      return std::move(difference).error();
    }
    end(difference->empty() ? State::kProved : State::kRefuted, *difference);
  } catch (const CudaFailure& failure) {
    const bool innocent = !begun || saysNothing(failure.code());
    end(innocent ? State::kOpen : State::kRefuted, failure.error().message);
    if (innocent || !answers(*queue_)) throw;
  } catch (...) {
    end(State::kOpen, {});
    throw;
  }
  return known();
}

void DirectProof::keep(State state, const std::string& difference) {
  cache_->writeFact(fact_, state == State::kProved ? kProved : state == State::kOpen ? kOpen : difference);
  if (state != State::kOpen) settle(state, difference);
}

}  // namespace srjit
