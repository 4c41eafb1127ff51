// Scratch memory of code generation, kept from one program to the next: new memory costs more than writing to it, since
// the system maps it page by page.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

namespace srjit {

/// Keeps the last scratch that was given back, unless it is large. Thread-safe. `Scratch` has bytes(), what it holds.
template <class Scratch>
class ScratchPool {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{128} << 20;  ///< that lie idle

  /// Contents are left over from the program before. Null if there is none.
  std::unique_ptr<Scratch> take() {
    const std::lock_guard lock(mutex_);
    return std::move(idle_);
  }
  void giveBack(std::unique_ptr<Scratch> scratch) {
    if (scratch->bytes() > kMostBytes) return;
    const std::lock_guard lock(mutex_);
    idle_.swap(scratch);
  }
  /// The same, but another one that was given back meanwhile stays.
  void giveBackUnlessThereIsOne(std::unique_ptr<Scratch> scratch) {
    if (scratch->bytes() > kMostBytes) return;
    const std::lock_guard lock(mutex_);
    if (idle_ == nullptr) idle_ = std::move(scratch);
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<Scratch> idle_;
};

}  // namespace srjit
