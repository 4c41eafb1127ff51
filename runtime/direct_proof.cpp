#include "runtime/direct_proof.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <tbb/task_arena.h>

#include "runtime/device_direct.h"
#include "runtime/direct_comparison.h"

namespace srjit {
namespace {

constexpr const char* kProved = "proved";
constexpr const char* kOpen = "open";
constexpr const char* kBegun = "begun";

std::string factOf(const DeviceLimits& limits, Math math, std::string_view identity) {
  return fmt::format("direct tier of {} ({}) {} {}", limits.name, limits.driver_version, nameOf(math), identity);
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
  if (!hasDirectTier(limits, store_->precision())) {
    state_ = State::kRefuted;
    fault_ = store_->precision() == Precision::kF32
                 ? Error{Errc::kUnsupported, fmt::format("no direct tier for sm_{}", limits.capability), {}}
                 : Error{Errc::kUnsupported, "the direct tier computes in f32 alone", {}};
    return;
  }
  fact_ = factOf(limits, store_->math(), store_->identity());
  if (const auto known = cache_->readFact(fact_)) recall(*known);
}

DirectProof::Standing DirectProof::standing(KernelCache& cache, const DeviceLimits& limits, Math math,
                                            std::string_view identity) {
  const std::string fact = cache.readFact(factOf(limits, math, identity)).value_or(kOpen);
  if (fact == kOpen) return {false, "not compared yet"};
  if (fact == kBegun) return {false, "being compared, or the process that did so died"};
  return {fact != kProved, fact};
}

void DirectProof::recall(const std::string& known) {
  if (known == kOpen || known == kBegun) return;
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

std::optional<Error> DirectProof::fault() {
  const std::lock_guard proving(proving_);
  if (!isOpen()) return known();
  const std::optional<FileLock> lock = cache_->lock(kPatience);
  if (!lock) {
    return Error{Errc::kUnsupported, "the direct tier is being compared with the interpreter by another process", {}};
  }
  if (const auto fact = cache_->readFact(fact_); fact == kBegun) {
    keep(State::kRefuted, "a process did not survive it");
  } else if (fact) {
    recall(*fact);
  }
  if (!isOpen()) return known();
  return prove();
}

std::optional<Error> DirectProof::prove() {
  bool begun = false;
  const auto begin = [&] {
    cache_->writeFact(fact_, kBegun);
    begun = true;
  };
  try {
    // Other tasks of the arena may need the proof, too, and would wait for it inside of it.
    auto difference = tbb::this_task_arena::isolate([&] { return compareDirectCode(queue_, store_, threads_, begin); });
    if (!difference) {
      keep(State::kOpen, {});
      return std::move(difference).error();
    }
    keep(difference->empty() ? State::kProved : State::kRefuted, *difference);
  } catch (const CudaFailure& failure) {
    const bool innocent = !begun || saysNothing(failure.code());
    keep(innocent ? State::kOpen : State::kRefuted, failure.error().message);
    if (innocent || !answers(*queue_)) throw;
  } catch (...) {
    keep(State::kOpen, {});
    throw;
  }
  return known();
}

void DirectProof::keep(State state, const std::string& difference) {
  cache_->writeFact(fact_, state == State::kProved ? kProved : state == State::kOpen ? kOpen : difference);
  if (state != State::kOpen) settle(state, difference);
}

}  // namespace srjit
