// Scratch memory of code generation, kept from one program to the next: new memory costs more than writing to it, since
// the system maps it page by page.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <tbb/enumerable_thread_specific.h>

#include "compiler/direct/emitter.h"
#include "compiler/kernels/image_maker.h"

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
  /// With `replaces`, instead of one that was given back meanwhile; otherwise that one stays.
  void giveBack(std::unique_ptr<Scratch> scratch, bool replaces = true) {
    if (scratch->bytes() > kMostBytes) return;
    const std::lock_guard lock(mutex_);
    if (replaces || idle_ == nullptr) idle_.swap(scratch);
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<Scratch> idle_;
};

/// Of direct code.
struct DirectScratch {
  DirectOptions options;
  std::optional<tbb::enumerable_thread_specific<DirectEmitter>> emitters;  ///< for the options
  std::vector<DirectPart> parts;
  KernelImage image;

  /// Without the emitters, which hold no more than the largest graph takes, one per thread.
  std::size_t bytes() const noexcept;
};

}  // namespace srjit
