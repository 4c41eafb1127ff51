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
  std::vector<EncodedChunk> chunks;  ///< of the last population that looks for programs, as many as it has
  std::vector<EncodedChunk> before;  ///< of the one before
  EncodedGeneration generation;      ///< of `before`
  std::vector<EncodedChunk> others;  ///< of a program that does not look for any

  /// Frees what only speed needs, if there is more than `most` bytes.
  void trim(std::size_t most);

  /// Without the workers, one per thread, which hold no more than the largest expression and the largest number of a
  /// variable take.
  std::size_t bytes() const noexcept;
};

using EncodeScratchPool = ScratchPool<EncodeScratch>;

}  // namespace srjit
