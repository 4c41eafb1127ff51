#include "runtime/host/batches.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <span>

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

namespace srjit {
namespace {

// Bytes of rows per block: few enough for the blocks of an expression to fit the L1 cache, enough to amortize dispatch.
// Multiples of kGroupRows rows. Results do not depend on them.
constexpr std::size_t kInterpretedBlockBytes = 2048, kCompiledBlockBytes = 1024;

// Expressions that share one loop over the rows, so that a block of columns is read from main memory once for all of
// them.
constexpr std::size_t kExpressionsPerChunk = 32;
constexpr std::size_t kInstructionsPerChunk = 4096;
constexpr std::size_t kTilesPerThread = 4;

// Scratch blocks are padded by one cache line, so that equal rows of two blocks map to different cache sets, and 4K
// aliasing between loads and stores is avoided.
constexpr std::size_t kSkew = kCacheLine;

// Scratch memory of this thread, kept from one call to the next unless it is large. Invariant: no task waits while it
// uses the memory, so no other task on this thread can take it.
std::byte* threadScratch(std::size_t bytes) {
  constexpr std::size_t kKept = std::size_t{4} << 20;
  thread_local AlignedBuffer scratch;
  if (scratch.size() < bytes || scratch.size() > std::max(bytes, kKept)) scratch = AlignedBuffer(bytes);
  return scratch.data();
}

template <class T>
double sumOf(const T* row_groups, std::size_t count) {
  SumChains chains;
  chains.add(std::span(row_groups, count));
  return chains.sum();
}

/// Partial sums of a chunk: one item per row group and output.
struct ChunkSums {
  std::size_t row_groups;
  bool weighs_rows;                  ///< whether weights of skipped rows must be excluded
  AlignedBuffer terms;               ///< in the precision
  std::vector<double> weights;       ///< only if weighs_rows
  std::vector<std::uint64_t> valid;  ///< per output, over all row groups

  // Sums of the weights of rows with a finite prediction, per row group.
  template <class T>
  void weigh(std::size_t output, std::size_t row, std::size_t rows, const T* predictions, const T* row_weights) {
    for (std::size_t first = 0; first < rows; first += kGroupRows) {
      std::array<T, kGroupRows> items{};
      for (std::size_t r = first; r < std::min(rows, first + kGroupRows); ++r) {
        if (std::isfinite(predictions[r])) items[r - first] = row_weights[r];
      }
      weights[output * row_groups + (row + first) / kGroupRows] = static_cast<double>(pairwiseSum(items));
    }
  }
};

/// One evaluation.
class HostRun {
 public:
  HostRun(const HostBatches& all, const Dataset::State& data, const std::byte* table, unsigned threads,
          const Deadline& deadline)
      : all_(all),
        batches_(all.batches()),
        data_(data),
        table_(table),
        element_(static_cast<std::size_t>(bytesOf(data.precision))),
        deadline_(deadline) {
    std::size_t instructions = 0;
    for (std::size_t i = 0; i < batches_.size(); ++i) {
      const HostBatch& batch = batches_[i];
      const std::size_t block_rows = (batch.code ? kCompiledBlockBytes : kInterpretedBlockBytes) / element_;
      if (chunks_.empty() || chunks_.back().block_rows != block_rows ||
          chunks_.back().outputs + batch.outputs.size() > kExpressionsPerChunk ||
          instructions > kInstructionsPerChunk) {
        chunks_.push_back({i, i, 0, block_rows, 0});
        instructions = 0;
      }
      Chunk& chunk = chunks_.back();
      chunk.last = i + 1;
      chunk.outputs += batch.outputs.size();
      chunk.scratch_bytes =
          std::max(chunk.scratch_bytes, (batch.program.slots + batch.outputs.size()) * (block_rows * element_ + kSkew));
      instructions += batch.program.instructions.size();
    }
    if (!chunks_.empty()) ranges_ = std::max<std::size_t>(1, kTilesPerThread * threads / chunks_.size());
  }

  void evaluate(std::byte* out) const {
    tbb::parallel_for(std::size_t{0}, chunks_.size(), [&](std::size_t c) {
      forEachRange(chunks_[c],
                   [&](std::size_t first, std::size_t last) { evaluateRange(chunks_[c], first, last, out); });
    });
  }

  void loss(HostLossKernel kernel, const LossSpec& spec, const TakeSums& take) const {
    const std::size_t row_groups = data_.padded_rows / kGroupRows;
    tbb::parallel_for(std::size_t{0}, chunks_.size(), [&](std::size_t c) {
      const Chunk& chunk = chunks_[c];
      ChunkSums parts{.row_groups = row_groups,
                      .weighs_rows = spec.weighted && spec.skip_invalid,
                      .terms = AlignedBuffer(chunk.outputs * row_groups * element_),
                      .weights = {},
                      .valid = std::vector<std::uint64_t>(chunk.outputs)};
      if (parts.weighs_rows) {
        for (std::size_t i = 0; i < chunk.outputs; ++i) {
          parts.weights.insert(parts.weights.end(), data_.row_group_weights.begin(), data_.row_group_weights.end());
        }
      }
      forEachRange(chunk, [&](std::size_t first, std::size_t last) { lossRange(chunk, first, last, kernel, parts); });
      std::size_t output = 0;
      for (std::size_t b = chunk.first; b < chunk.last; ++b) {
        for (const std::uint32_t number : batches_[b].outputs) {
          LossSums sum;
          sum.rows = data_.rows;
          sum.valid = parts.valid[output];
          sum.terms = withZeroOf(data_.precision, [&]<class T>(T) {
            return sumOf(parts.terms.as<T>() + output * row_groups, row_groups);
          });
          const bool some_left_out = parts.weighs_rows && sum.valid != sum.rows;
          sum.weights = some_left_out              ? sumOf(parts.weights.data() + output * row_groups, row_groups)
                        : data_.weights != nullptr ? data_.weight_sum
                        : spec.skip_invalid        ? static_cast<double>(sum.valid)
                                                   : static_cast<double>(sum.rows);
          take(number, sum);
          ++output;
        }
      }
    });
  }

 private:
  struct Chunk {
    std::size_t first, last;  ///< batches
    std::size_t outputs;      ///< of all of these
    std::size_t block_rows;
    std::size_t scratch_bytes;
  };
  struct Place {
    std::byte* out;
    std::size_t stride;  ///< bytes from one root's output to the next
  };

  template <class Body>
  void forEachRange(const Chunk& chunk, const Body& body) const {
    const std::size_t blocks = ceilDivide(data_.rows, chunk.block_rows);
    const std::size_t ranges = std::min(ranges_, blocks);
    const auto edge = [&](std::size_t range) {
      return std::min(data_.rows, blocks * range / ranges * chunk.block_rows);
    };
    if (ranges == 1) {
      body(std::size_t{0}, data_.rows);
    } else {
      // Isolated: a thread that waits for the last range must not start another chunk. That would add its memory to
      // this chunk's, and delay this chunk until the other one ends.
      tbb::this_task_arena::isolate([&] {
        tbb::parallel_for(std::size_t{0}, ranges, [&](std::size_t range) { body(edge(range), edge(range + 1)); });
      });
    }
  }

  void interpret(const HostBatch& batch, std::size_t row, std::size_t rows, Place place, std::byte* slots,
                 std::size_t slot_stride) const {
    // The const_casts are safe: handlers take operands as pointers to const, and only destinations address the array
    // that is written.
    std::byte* const bases[] = {const_cast<std::byte*>(data_.storage.data()) + row * element_,
                                const_cast<std::byte*>(table_) + batch.parameters * element_, slots, place.out};
    const std::size_t strides[] = {data_.column_stride * element_, element_, slot_stride, place.stride};
    const auto address = [&](HostOperand operand) {
      return bases[operand.base()] + strides[operand.base()] * operand.index();
    };
    const HostHandler* const handlers = all_.handlers().data();
    for (const HostInstruction& i : batch.program.instructions) {
      handlers[i.handler](address(i.destination), address(i.operands[0]), address(i.operands[1]),
                          address(i.operands[2]), static_cast<std::int64_t>(rows));
    }
  }

  void runBlock(const Chunk& chunk, const HostBatch& batch, std::size_t row, std::size_t rows, Place place,
                std::byte* scratch) const {
    deadline_.check();
    if (!batch.code) {
      const std::size_t stride = chunk.block_rows * element_ + kSkew;
      interpret(batch, row, rows, place, scratch + batch.outputs.size() * stride, stride);
      return;
    }
    (*batch.code)(data_.storage.data() + row * element_, static_cast<std::int64_t>(data_.column_stride),
                  table_ + batch.parameters * element_, place.out, static_cast<std::int64_t>(place.stride / element_),
                  static_cast<std::int64_t>(rows));
  }

  Place scratchOutputs(const Chunk& chunk, std::byte* scratch) const {
    return {scratch, chunk.block_rows * element_ + kSkew};
  }

  void evaluateRange(const Chunk& chunk, std::size_t first_row, std::size_t last_row, std::byte* out) const {
    std::byte* const scratch = threadScratch(chunk.scratch_bytes);
    const std::size_t out_stride = data_.rows * element_;
    for (std::size_t row = first_row; row < last_row; row += chunk.block_rows) {
      const std::size_t rows = std::min(chunk.block_rows, last_row - row);
      for (std::size_t b = chunk.first; b < chunk.last; ++b) {
        const HostBatch& batch = batches_[b];
        if (rows % kRowQuantum == 0) {
          const Place direct{out + batch.outputs[0] * out_stride + row * element_, out_stride};
          runBlock(chunk, batch, row, rows, direct, scratch);
          continue;
        }
        const Place place = scratchOutputs(chunk, scratch);
        runBlock(chunk, batch, row, roundUp(rows, kRowQuantum), place, scratch);
        for (std::size_t i = 0; i < batch.outputs.size(); ++i) {
          std::memcpy(out + batch.outputs[i] * out_stride + row * element_, place.out + i * place.stride,
                      rows * element_);
        }
      }
    }
  }

  void lossRange(const Chunk& chunk, std::size_t first_row, std::size_t last_row, HostLossKernel kernel,
                 ChunkSums& sums) const {
    std::byte* const scratch = threadScratch(chunk.scratch_bytes);
    const Place place = scratchOutputs(chunk, scratch);
    std::vector<std::uint64_t> valid(chunk.outputs, 0);
    for (std::size_t row = first_row; row < last_row; row += chunk.block_rows) {
      const std::size_t rows = std::min(chunk.block_rows, last_row - row);
      const std::byte* const weights = data_.weights == nullptr ? nullptr : data_.weights + row * element_;
      std::size_t output = 0;
      for (std::size_t b = chunk.first; b < chunk.last; ++b) {
        runBlock(chunk, batches_[b], row, roundUp(rows, kGroupRows), place, scratch);
        for (std::size_t i = 0; i < batches_[b].outputs.size(); ++i, ++output) {
          const std::byte* const predictions = place.out + i * place.stride;
          std::byte* const row_group = sums.terms.data() + (output * sums.row_groups + row / kGroupRows) * element_;
          const std::int64_t count =
              kernel(predictions, data_.target + row * element_, weights, row_group, static_cast<std::int64_t>(rows));
          valid[output] += static_cast<std::uint64_t>(count);
          if (!sums.weighs_rows || static_cast<std::size_t>(count) == rows) continue;
          withZeroOf(data_.precision, [&]<class T>(T) {
            sums.weigh(output, row, rows, reinterpret_cast<const T*>(predictions), reinterpret_cast<const T*>(weights));
          });
        }
      }
    }
    for (std::size_t output = 0; output < chunk.outputs; ++output) {
      std::atomic_ref(sums.valid[output]).fetch_add(valid[output], std::memory_order_relaxed);
    }
  }

  const HostBatches& all_;
  const std::span<const HostBatch> batches_;
  const Dataset::State& data_;
  const std::byte* table_;
  const std::size_t element_;  ///< bytes of a number
  const Deadline& deadline_;
  std::vector<Chunk> chunks_;
  std::size_t ranges_ = 1;  ///< parts into which the rows of a chunk are divided
};

}  // namespace

void predictOnHost(const HostBatches& batches, const Dataset::State& data, const std::byte* table, unsigned threads,
                   const Deadline& deadline, std::byte* out) {
  HostRun(batches, data, table, threads, deadline).evaluate(out);
}

void sumOnHost(const HostBatches& batches, const Dataset::State& data, const std::byte* table, unsigned threads,
               const Deadline& deadline, HostLossKernel kernel, const LossSpec& spec, const TakeSums& take) {
  HostRun(batches, data, table, threads, deadline).loss(kernel, spec, take);
}

}  // namespace srjit
