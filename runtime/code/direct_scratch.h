// Memory of those who make direct code, kept from one program to the next: fresh memory costs more than what is written
// there, since the system hands it out page by page.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <tbb/enumerable_thread_specific.h>

#include "compiler/direct/emitter.h"
#include "compiler/kernels/image_maker.h"

namespace srjit {

/// What one program's code is made with. Contents are left over from the one before.
struct DirectScratch {
  using Emitters = tbb::enumerable_thread_specific<DirectEmitter>;

  DirectOptions options;
  std::optional<Emitters> emitters;  ///< for the options
  std::vector<DirectPart> parts;
  KernelImage image;
};

/// Keeps the last scratch that was given back, unless it is large. Thread-safe.
class DirectScratchPool {
 public:
  /// For options that DirectEmitter::create() accepts.
  std::unique_ptr<DirectScratch> take(const DirectOptions& options);
  void giveBack(std::unique_ptr<DirectScratch> scratch);

 private:
  std::mutex mutex_;
  std::unique_ptr<DirectScratch> idle_;
};

}  // namespace srjit
