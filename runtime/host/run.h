// Batches over the rows of a data set, on all threads of an arena.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "runtime/evaluation/dataset_state.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/host/batches.h"

namespace srjit {

/// Rows per block: few enough for the blocks of an expression to fit the L1 cache, enough to amortize dispatch.
/// Multiples of kGroupRows. Results do not depend on them.
inline constexpr std::size_t kInterpretedBlockBytes = 2048;
inline constexpr std::size_t kCompiledBlockBytes = 1024;

/// One evaluation: batches, data, parameters. Borrows everything; call inside the arena.
class HostRun {
 public:
  /// `table` has the entries of all.parameters(), filled in. Precondition: `batches` are batches of `all`, and the data
  /// have all their variables. Evaluations throw an ErrorException (kLimit) if the deadline is over before a block of
  /// rows.
  HostRun(const HostBatches& all, std::vector<const HostBatch*> batches, const Dataset::State& data,
          const std::byte* table, unsigned threads, const Deadline& deadline = {});

  /// Output o at out + o * rows, in the precision.
  void evaluate(std::byte* out) const;

  /// Calls `take` once for each output of the batches, from several threads of the arena at the same time.
  using TakeSums = std::function<void(std::size_t output, const LossSums& sums)>;
  void loss(HostLossKernel kernel, const LossSpec& spec, const TakeSums& take) const;

 private:
  struct Chunk {
    std::size_t first, last;  ///< indices in batches_
    std::size_t outputs;      ///< outputs of all of these
    std::size_t block_rows;
    std::size_t scratch_bytes;
  };
  struct Place {
    std::byte* out;
    std::size_t stride;  ///< bytes from one root's output to the next
  };
  struct ChunkSums;

  template <class Body>
  void forEachRange(const Chunk& chunk, const Body& body) const;
  void interpret(const HostBatch& batch, std::size_t row, std::size_t rows, Place place, std::byte* slots,
                 std::size_t slot_stride) const;
  void runBlock(const Chunk& chunk, const HostBatch& batch, std::size_t row, std::size_t rows, Place place,
                std::byte* scratch) const;
  void evaluateRange(const Chunk& chunk, std::size_t first_row, std::size_t last_row, std::byte* out) const;
  void lossRange(const Chunk& chunk, std::size_t first_row, std::size_t last_row, HostLossKernel kernel,
                 ChunkSums& sums) const;
  Place scratchOutputs(const Chunk& chunk, std::byte* scratch) const;

  const HostBatches& all_;
  std::vector<const HostBatch*> batches_;
  const Dataset::State& data_;
  const std::byte* table_;
  std::size_t element_;  ///< bytes of a number
  const Deadline deadline_;
  std::vector<Chunk> chunks_;
  std::size_t ranges_ = 1;  ///< parts into which the rows of a chunk are divided
};

}  // namespace srjit
