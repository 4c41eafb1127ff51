// Scratch memory for direct code generation, kept from one program to the next: new memory costs more than writing to
// it, since the system maps it page by page.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <tbb/enumerable_thread_specific.h>

#include "compiler/direct/emitter.h"
#include "compiler/kernels/image_maker.h"

namespace srjit {

/// Scratch memory for one program's code. Contents are left over from the program before.
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
