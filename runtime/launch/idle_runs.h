// Runs that are kept for the next evaluation of their kind, of all programs of an engine.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/launch/run.h"

namespace srjit {

/// The one used least recently goes first when they take more device memory than allowed. Thread-safe; what is dropped
/// is destroyed outside of its lock.
class IdleRuns {
 public:
  explicit IdleRuns(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  /// A run that fits this plan, if there is one.
  std::unique_ptr<DeviceRun> take(const RunPlan& plan);
  /// Keeps it, whatever its size, and drops others until they fit. It is of no use once `owner` has expired.
  void keep(std::unique_ptr<DeviceRun> run, std::weak_ptr<const void> owner);

  void dropOrphans();
  void clear();
  /// Of device memory.
  std::size_t bytes() const;

 private:
  using Entries = std::list<std::pair<std::unique_ptr<DeviceRun>, std::weak_ptr<const void>>>;  ///< with the owners
  void move(Entries::iterator entry, Entries& to);

  const std::size_t max_bytes_;
  mutable std::mutex mutex_;
  Entries entries_;  ///< the one used last is the last
  std::size_t bytes_ = 0;
};

}  // namespace srjit
