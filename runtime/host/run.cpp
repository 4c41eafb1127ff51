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
// Predictions of a chunk that are kept for sums about their means, at most: a part of the L2 cache.
constexpr std::size_t kMostPredictionBytes = std::size_t{1} << 19;

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

/// The sum of some items over row groups, in the precision or in double.
template <class T>
double sumOf(const T* row_groups, std::size_t count) {
  SumChains chains;
  chains.add(std::span(row_groups, count));
  return chains.sum();
}

/// Sums of a row group that depend on the rows that count, but not on terms: LossSpec::targetSums(), then weights.
/// Nearly always all rows count.
class ValidRowSums {
 public:
  ValidRowSums(const HostLoss& loss, const Dataset::State& data)
      : loss_(loss), data_(data), sums_(loss.spec.targetSums() + (loss.spec.skip_invalid && loss.spec.weighted)) {}

  std::size_t sums() const { return sums_; }
  /// Calls put(sum, value) for each sum over the rows from `first` on, at most `rows` and a row group, for which
  /// counts(row), from 0 on, holds.
  template <class T, class Counts, class Put>
  void add(std::size_t first, std::size_t rows, const Counts& counts, const Put& put) const {
    const auto* const target = reinterpret_cast<const T*>(data_.target) + first;
    const auto* const weights = reinterpret_cast<const T*>(data_.weights) + (data_.weights == nullptr ? 0 : first);
    const T centre = static_cast<T>(loss_.constants.target_centre);
    std::array<std::array<T, kGroupRows>, kTargetSums + 1> items{};
    for (std::size_t r = 0; r < std::min(rows, kGroupRows); ++r) {
      if (!counts(r)) continue;
      std::size_t sum = 0;
      if (loss_.spec.targetSums() > 0) {
        eachTargetTerm(target[r] - centre,
                       [&](T term) { items[sum++][r] = loss_.spec.weighted ? weights[r] * term : term; });
      }
      if (loss_.spec.weighted) items[sum][r] = weights[r];
    }
    for (std::size_t sum = 0; sum < sums_; ++sum) put(sum, static_cast<double>(pairwiseSum(items[sum])));
  }

 private:
  const HostLoss& loss_;
  const Dataset::State& data_;
  const std::size_t sums_;
};

/// Partial sums of a chunk: one item per row group, for every sum of every output.
struct ChunkSums {
  AlignedBuffer terms;               ///< in the precision
  std::vector<double> of_valid;      ///< ValidRowSums
  std::vector<std::uint64_t> valid;  ///< per output, over all row groups
  /// By output: the conditioning of the prediction that is to be summed; nothing if none is.
  std::vector<std::optional<Conditioning>> wanted;
  /// Bytes from an output's predictions to those of the next, if all are kept in the thread's scratch memory behind
  /// that of the chunk; else 0.
  std::size_t prediction_stride = 0;
  bool has_predictions = false;  ///< they are there
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
          std::max(chunk.scratch_bytes, (batch.slots + batch.outputs.size()) * (block_rows * element_ + kSkew));
      instructions += batch.instructions;
    }
    if (!chunks_.empty()) ranges_ = std::max<std::size_t>(1, kTilesPerThread * threads / chunks_.size());
  }

  void evaluate(std::byte* out) const {
    tbb::parallel_for(std::size_t{0}, chunks_.size(), [&](std::size_t c) {
      forEachRange(chunks_[c],
                   [&](std::size_t first, std::size_t last) { evaluateRange(chunks_[c], first, last, out); });
    });
  }

  void loss(const HostLoss& loss, const TakeSums& take) const {
    const ValidRowSums of_valid(loss, data_);
    const std::vector<double> of_all_rows = sumsOfAllRows(of_valid, loss.spec);
    tbb::parallel_for(std::size_t{0}, chunks_.size(),
                      [&](std::size_t c) { sumChunk(chunks_[c], loss, of_valid, of_all_rows, take); });
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

  std::size_t blocksOf(const Chunk& chunk) const { return ceilDivide(data_.rows, chunk.block_rows); }

  template <class Body>
  void forEachRange(const Chunk& chunk, const Body& body) const {
    const std::size_t blocks = blocksOf(chunk), ranges = std::min(ranges_, blocks);
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
    for (const HostInstruction& i : all_.instructionsOf(batch)) {
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
          const Place direct{out + batch.outputs.front() * out_stride + row * element_, out_stride};
          runBlock(chunk, batch, row, rows, direct, scratch);
          continue;
        }
        const Place place = scratchOutputs(chunk, scratch);
        runBlock(chunk, batch, row, roundUp(rows, kRowQuantum), place, scratch);
        for (std::size_t i = 0; i < batch.outputs.size(); ++i) {
          std::memcpy(out + (batch.outputs.front() + i) * out_stride + row * element_, place.out + i * place.stride,
                      rows * element_);
        }
      }
    }
  }

  std::size_t rowGroups() const { return data_.padded_rows / kGroupRows; }

  /// Each sum of every row group, if all of its rows count.
  std::vector<double> sumsOfAllRows(const ValidRowSums& of_valid, const LossSpec& spec) const {
    if (spec.targetSums() == 0) return of_valid.sums() == 0 ? std::vector<double>() : data_.row_group_weights;
    std::vector<double> all(of_valid.sums() * rowGroups());
    tbb::parallel_for(std::size_t{0}, rowGroups(), [&](std::size_t g) {
      const std::size_t first = g * kGroupRows;
      withZeroOf(data_.precision, [&]<class T>(T) {
        of_valid.add<T>(
            first, data_.rows - first, [](std::size_t) { return true; },
            [&](std::size_t sum, double value) { all[sum * rowGroups() + g] = value; });
      });
    });
    return all;
  }

  // Another thread has scratch memory of its own.
  std::size_t predictionStride(const Chunk& chunk, const LossSpec& spec) const {
    const std::size_t stride = data_.padded_rows * element_ + kSkew;
    const bool is_kept = isOfMoments(spec.term) && std::min(ranges_, blocksOf(chunk)) == 1 &&
                         chunk.outputs * stride <= kMostPredictionBytes;
    return is_kept ? stride : 0;
  }

  // Outputs are summed again from kept predictions, or with the batches that they are in.
  void sumChunk(const Chunk& chunk, const HostLoss& loss, const ValidRowSums& of_valid,
                std::span<const double> of_all_rows, const TakeSums& take) const {
    ChunkSums parts{.terms = AlignedBuffer(chunk.outputs * loss.spec.sums() * rowGroups() * element_),
                    .of_valid = {},
                    .valid = {},
                    .wanted = std::vector<std::optional<Conditioning>>(chunk.outputs, Conditioning()),
                    .prediction_stride = predictionStride(chunk, loss.spec)};
    std::vector<std::uint64_t> valid;
    bool is_left = true;
    for (int times = 0; is_left; ++times) {
      parts.of_valid.clear();
      for (std::size_t i = 0; i < chunk.outputs; ++i) {
        parts.of_valid.insert(parts.of_valid.end(), of_all_rows.begin(), of_all_rows.end());
      }
      parts.valid.assign(chunk.outputs, 0);
      forEachRange(chunk,
                   [&](std::size_t first, std::size_t last) { lossRange(chunk, first, last, loss, of_valid, parts); });
      if (times == 0) valid = parts.valid;
      parts.has_predictions = parts.prediction_stride != 0;
      is_left = false;
      std::size_t output = 0;
      for (std::size_t b = chunk.first; b < chunk.last; ++b) {
        for (const std::uint32_t number : batches_[b].outputs) {
          std::optional<Conditioning>& now = parts.wanted[output];
          if (now) {
            LossSums sums = sumsOf(parts, output, loss, of_valid);
            sums.valid = valid[output];
            now = take(number, sums, *now, times);
            is_left |= now.has_value();
          }
          ++output;
        }
      }
    }
  }

  LossSums sumsOf(const ChunkSums& parts, std::size_t output, const HostLoss& loss,
                  const ValidRowSums& of_valid) const {
    std::array<double, kMostChannels> sums{};
    std::size_t channels = 0;
    withZeroOf(data_.precision, [&]<class T>(T) {
      const T* const terms = parts.terms.as<T>() + output * loss.spec.sums() * rowGroups();
      while (channels < loss.spec.sums()) {
        sums[channels] = sumOf(terms + channels * rowGroups(), rowGroups());
        ++channels;
      }
    });
    const auto keep = [&](std::size_t sum) {
      sums[channels++] = sumOf(parts.of_valid.data() + (output * of_valid.sums() + sum) * rowGroups(), rowGroups());
    };
    for (std::size_t sum = 0; sum < loss.spec.targetSums(); ++sum) keep(sum);
    if (loss.spec.skip_invalid) sums[channels++] = static_cast<double>(parts.valid[output]);
    if (loss.spec.counts() == 2) keep(of_valid.sums() - 1);
    return readSums(std::span(sums).first(channels), loss.spec, loss.constants, data_);
  }

  void lossRange(const Chunk& chunk, std::size_t first_row, std::size_t last_row, const HostLoss& loss,
                 const ValidRowSums& of_valid, ChunkSums& sums) const {
    std::byte* const scratch = threadScratch(chunk.scratch_bytes + chunk.outputs * sums.prediction_stride);
    std::vector<std::uint64_t> valid(chunk.outputs, 0);
    for (std::size_t row = first_row; row < last_row; row += chunk.block_rows) {
      const std::size_t rows = std::min(chunk.block_rows, last_row - row);
      std::size_t output = 0;
      for (std::size_t b = chunk.first; b < chunk.last; ++b) {
        const std::size_t count = batches_[b].outputs.size();
        const auto wanted = std::span(sums.wanted).subspan(output, count);
        if (std::ranges::any_of(wanted, [](const auto& one) { return one.has_value(); })) {
          Place place = scratchOutputs(chunk, scratch);
          if (sums.prediction_stride != 0) {
            place = {scratch + chunk.scratch_bytes + output * sums.prediction_stride + row * element_,
                     sums.prediction_stride};
          }
          if (!sums.has_predictions) runBlock(chunk, batches_[b], row, roundUp(rows, kGroupRows), place, scratch);
          for (std::size_t i = 0; i < count; ++i) {
            if (!wanted[i]) continue;
            const std::byte* const predictions = place.out + i * place.stride;
            valid[output + i] += sumBlock(predictions, row, rows, output + i, loss, of_valid, sums);
          }
        }
        output += count;
      }
    }
    for (std::size_t output = 0; output < chunk.outputs; ++output) {
      std::atomic_ref(sums.valid[output]).fetch_add(valid[output], std::memory_order_relaxed);
    }
  }

  /// Sums an output of adjacent rows. Returns how many count.
  std::size_t sumBlock(const std::byte* predictions, std::size_t row, std::size_t rows, std::size_t output,
                       const HostLoss& loss, const ValidRowSums& of_valid, ChunkSums& sums) const {
    return withZeroOf(data_.precision, [&]<class T>(T) {
      const Conditioning& conditioning = *sums.wanted[output];
      const HostMoments<T> numbers{.centre = static_cast<T>(loss.constants.target_centre),
                                   .factor = static_cast<T>(conditioning.factor),
                                   .offset = static_cast<T>(conditioning.offset)};
      const auto* const f = reinterpret_cast<const T*>(predictions);
      const std::byte* const weights = data_.weights == nullptr ? nullptr : data_.weights + row * element_;
      const std::size_t row_group = row / kGroupRows;
      T* const terms = sums.terms.as<T>() + output * loss.spec.sums() * rowGroups() + row_group;
      const auto count = static_cast<std::size_t>(loss.kernel(f, data_.target + row * element_, weights, &numbers,
                                                              terms, static_cast<std::int64_t>(rowGroups()),
                                                              static_cast<std::int64_t>(rows)));
      if (of_valid.sums() == 0 || count == rows) return count;
      for (std::size_t first = 0; first < rows; first += kGroupRows) {
        const std::size_t to = output * of_valid.sums() * rowGroups() + row_group + first / kGroupRows;
        of_valid.add<T>(
            row + first, rows - first,
            [&](std::size_t r) { return std::isfinite(f[first + r] * numbers.factor + numbers.offset); },
            [&](std::size_t sum, double value) { sums.of_valid[to + sum * rowGroups()] = value; });
      }
      return count;
    });
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
               const Deadline& deadline, const HostLoss& loss, const TakeSums& take) {
  HostRun(batches, data, table, threads, deadline).loss(loss, take);
}

}  // namespace srjit
