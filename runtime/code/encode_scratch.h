// Scratch memory of encoding for the GPU's interpreter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tbb/enumerable_thread_specific.h>

#include "compiler/interpreter/bytecode.h"
#include "compiler/kernels/parameter_table.h"
#include "ir/ops.h"
#include "passes/expression_optimizer.h"
#include "runtime/code/scratch_pool.h"
#include "runtime/results.h"

namespace srjit {

/// Adjacent chosen expressions, encoded by one task.
struct EncodedChunk {
  std::size_t first = 0, last = 0;  ///< of the chosen
  std::size_t section = 0;
  Bytecode code = {};
  std::vector<std::uint32_t> lengths = {};  ///< of the programs
  ParameterTable parameters = {};
  std::vector<Failure> failures = {};
  std::size_t tokens = 0, nodes = 0;         ///< of the expressions, and of their graphs
  std::vector<std::uint8_t> operators = {};  ///< by operator: whether a graph has it
  std::vector<std::uint8_t> variables = {};  ///< by variable, likewise

  /// Makes it that of other expressions, in the same memory.
  void begin(std::size_t first_chosen, std::size_t last_chosen, std::size_t number_of_section);
  std::size_t bytes() const noexcept;
};

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
  std::vector<EncodedChunk> chunks;

  /// Without the workers, which hold no more than the largest expression takes, one per thread.
  std::size_t bytes() const noexcept;
};

using EncodeScratchPool = ScratchPool<EncodeScratch>;

}  // namespace srjit
