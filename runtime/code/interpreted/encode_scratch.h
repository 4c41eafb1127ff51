// Scratch memory of encoding for the GPU's interpreter.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <tbb/enumerable_thread_specific.h>

#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/handler_table.h"
#include "passes/gradient/deriver.h"
#include "runtime/code/interpreted/encoded_generation.h"

namespace srjit {

/// What one thread optimizes and encodes with.
struct EncodeWorker {
  EncodeWorker(Precision precision, Math math, const HandlerTable& table)
      : optimizer(precision, math), encoder(table.numbers()) {}

  Deriver optimizer;
  Encoder encoder;
  std::vector<std::uint32_t> outputs;  ///< of one expression
};

/// Chunks in memory that is used again.
class EncodedChunks {
 public:
  void clear() noexcept { used_ = 0; }
  /// More chunks, whose contents are left over. Spans of those before are valid until the memory grows.
  std::span<EncodedChunk> add(std::size_t count);
  std::span<const EncodedChunk> used() const noexcept { return std::span(all_).first(used_); }
  /// Those from number `first` on; as valid as those that add() gives.
  std::span<EncodedChunk> from(std::size_t first) noexcept { return std::span(all_).subspan(first, used_ - first); }
  std::size_t bytes() const noexcept;

 private:
  std::vector<EncodedChunk> all_;
  std::size_t used_ = 0;
};

/// Scratch memory for one program's code.
struct EncodeScratch {
  /// The table must outlive the scratch.
  EncodeScratch(Precision precision, Math math, const HandlerTable& table)
      : workers([=, &table] { return EncodeWorker(precision, math, table); }) {}

  tbb::enumerable_thread_specific<EncodeWorker> workers;
  EncodedChunks chunks;          ///< of the last population that looks for programs
  EncodedChunks before;          ///< of the one before
  EncodedGeneration generation;  ///< of `before`
  EncodedChunks others;          ///< of a program that does not look for any

  /// Frees what only speed needs, if there is more than `most` bytes.
  void trim(std::size_t most);

  /// Without the workers, one per thread, which hold no more than the largest expression and the largest number of a
  /// variable take.
  std::size_t bytes() const noexcept;
};

}  // namespace srjit
