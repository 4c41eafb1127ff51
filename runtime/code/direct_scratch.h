// Scratch memory of direct code generation.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include <tbb/enumerable_thread_specific.h>

#include "compiler/direct/emitter.h"
#include "compiler/kernels/image_maker.h"
#include "runtime/code/scratch_pool.h"

namespace srjit {

/// Scratch memory for one program's code.
struct DirectScratch {
  using Emitters = tbb::enumerable_thread_specific<DirectEmitter>;

  DirectOptions options;
  std::optional<Emitters> emitters;  ///< for the options
  std::vector<DirectPart> parts;
  KernelImage image;

  /// Without the emitters, which hold no more than the largest graph takes, one per thread.
  std::size_t bytes() const noexcept;
};

using DirectScratchPool = ScratchPool<DirectScratch>;

/// Scratch of the pool, or new, for options that DirectEmitter::create() accepts.
std::unique_ptr<DirectScratch> takeDirectScratch(DirectScratchPool& pool, const DirectOptions& options);

}  // namespace srjit
