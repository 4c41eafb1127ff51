// Scratch memory of encoding for the GPU's interpreter.
#pragma once

#include <cstddef>
#include <vector>

#include <tbb/enumerable_thread_specific.h>

#include "compiler/interpreter/bytecode.h"
#include "passes/expression_optimizer.h"
#include "runtime/code/encoded_generation.h"
#include "runtime/code/scratch_pool.h"

namespace srjit {

/// What one thread optimizes and encodes with.
struct EncodeWorker {
  ExpressionOptimizer optimizer;
  Encoder encoder;
};

/// Scratch memory for one program's code.
struct EncodeScratch {
  /// The table must outlive the scratch.
  EncodeScratch(Precision precision, Math math, const HandlerTable& table)
      : workers([=, &table] { return EncodeWorker{{precision, math}, Encoder(table)}; }) {}

  tbb::enumerable_thread_specific<EncodeWorker> workers;
  std::vector<EncodedChunk> chunks;  ///< of the program, as many as it has
  std::vector<EncodedChunk> before;  ///< of the program before
  EncodedGeneration generation;      ///< of `before`

  /// Without the workers, which hold no more than the largest expression takes, one per thread.
  std::size_t bytes() const noexcept;
};

using EncodeScratchPool = ScratchPool<EncodeScratch>;

}  // namespace srjit
