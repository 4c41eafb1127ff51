#include "runtime/launch/idle_runs.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace srjit {
namespace {

// Small runs hold little device memory, but events, pinned memory and graphs.
constexpr std::size_t kMaxRuns = 64;

}  // namespace

void IdleRuns::move(Entries::iterator entry, Entries& to) {
  bytes_ -= entry->first->deviceBytes();
  to.splice(to.end(), entries_, entry);
}

std::unique_ptr<DeviceRun> IdleRuns::take(const RunPlan& plan) {
  Entries taken;
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(),
                                  [&](const auto& entry) { return plan.fitsRunOf(entry.first->plan()); });
  if (found == entries_.rend()) return nullptr;
  move(std::prev(found.base()), taken);
  return std::move(taken.front().first);
}

void IdleRuns::keep(std::unique_ptr<DeviceRun> run, std::weak_ptr<const void> owner) {
  Entries dropped;
  const std::lock_guard lock(mutex_);
  entries_.emplace_back(std::move(run), std::move(owner));
  bytes_ += entries_.back().first->deviceBytes();
  while (entries_.size() > 1 && (bytes_ > max_bytes_ || entries_.size() > kMaxRuns)) move(entries_.begin(), dropped);
}

void IdleRuns::dropOrphans() {
  Entries dropped;
  const std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (entry->second.expired()) move(entry, dropped);
    entry = next;
  }
}

void IdleRuns::clear() {
  Entries dropped;
  const std::lock_guard lock(mutex_);
  std::swap(dropped, entries_);
  bytes_ = 0;
}

std::size_t IdleRuns::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace srjit
