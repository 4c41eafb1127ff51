// The plan of an evaluation, and its memory: for how many rows at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compiler/direct/emitter.h"
#include "ir/numbers/rounding.h"
#include "runtime/code/kernel_store.h"
#include "runtime/code/parts.h"
#include "runtime/gpu/data.h"
#include "runtime/gpu/queue.h"

namespace srjit {

/// Code on data, for one kind of kernel. Of the data it has only what decides about a run. Invariant: the store made
/// the code, for `kind`; the data have the store's precision; and the numbers of the code's outputs are less than
/// `outputs`. Constant once a run has it.
struct RunPlan {
  std::shared_ptr<KernelStore> store;
  std::shared_ptr<const DeviceCode> code;
  std::uint64_t data_serial;  ///< of the data of all its evaluations
  KernelKind kind;
  std::size_t outputs;                         ///< of the program
  std::optional<DirectGrid> direct_grid = {};  ///< none: directGrid()
  /// Whether output o goes to column o of the data, resident ones, instead of to the host; all rows
  /// in one chunk.
  bool into_columns = false;

  /// Whether a run of `other` can serve an evaluation of this plan.
  bool fitsRunOf(const RunPlan& other) const {
    return store == other.store && code == other.code && data_serial == other.data_serial && kind == other.kind &&
           direct_grid == other.direct_grid && into_columns == other.into_columns;
  }
  /// Of the code and the data.
  Precision precision() const noexcept { return store->precision(); }
  /// Of a number.
  std::size_t elementBytes() const noexcept { return static_cast<std::size_t>(bytesOf(precision())); }
  /// Sums of each output of a loss.
  std::size_t channels() const noexcept { return kind.loss ? kind.loss->channels() : 1; }
};

/// The number of chunks of rows that large predictions are made in, so that making and copying them overlap.
inline constexpr std::size_t kPredictionChunks = 8;

/// Buffers of the device and pinned memory of the host. Invariant: the buffers hold all that kernels write for chunks
/// of chunkRows() rows, and take at most the budget, unless the chunks are the smallest there are. Not thread-safe.
class RunMemory {
 public:
  /// Of the device, for the predictions of one chunk, and the event to record after the kernels that fill it.
  using PredictionBuffer = std::pair<DeviceBuffer, Event>;

  /// Takes memory, for chunks of rows that shrink until they fit into the budget and into free memory. Needs a current
  /// context. Throws CudaFailure, with CUDA_ERROR_OUT_OF_MEMORY if the smallest chunks do not fit.
  RunMemory(const RunPlan& plan, const Dataset::State& data, std::size_t budget);

  std::size_t rows() const noexcept { return rows_; }
  std::size_t chunkRows() const noexcept { return chunk_rows_; }
  std::size_t chunks() const noexcept { return ceilDivide(rows_, chunk_rows_); }
  /// Bytes from the predictions of one expression to those of the next.
  std::size_t predictionPitch() const noexcept { return prediction_pitch_; }
  /// Of the device.
  std::size_t bytes() const noexcept;

  /// The table of the code's parameters; 0 bytes if there are none.
  const DeviceBuffer& parameters() const noexcept { return parameters_; }
  /// Sums of a chunk's row groups, chains of sums between chunks, and the totals of a loss.
  CUdeviceptr sums() const noexcept { return sums_.address(); }
  const DeviceBuffer& chains() const noexcept { return chains_; }
  const DeviceBuffer& totals() const noexcept { return totals_; }
  /// Pinned: the totals, after they were copied there; null if there are none.
  PinnedBuffer* hostTotals() const noexcept { return host_totals_.get(); }
  /// Chunks alternate between these; if there is only one, a chunk's kernels wait until
  /// the chunk before it was copied out.
  std::span<const PredictionBuffer> predictions() const noexcept { return predictions_; }

  /// Writes a caller's parameters between the literals, in pinned memory.
  void fillParameters(const ParameterTable& table, std::span<const double> parameters, Precision precision);
  /// Puts the copy of the parameters on the stream.
  void copyParameters(const Stream& stream) const;

 private:
  bool take(const RunPlan& plan, std::size_t budget, bool last_try);
  void takeSums(const RunPlan& plan, std::size_t chunk_bytes);
  void takePredictionBuffers(const RunPlan& plan, std::size_t count, std::size_t chunk_bytes, std::size_t budget,
                             bool last_try);
  std::size_t chunkBytes(const RunPlan& plan) const noexcept;
  void setChunkRows(const RunPlan& plan, const Dataset::State& data, std::size_t rows) noexcept;

  std::size_t rows_;
  std::size_t chunk_rows_ = 0;
  std::size_t prediction_pitch_ = 0;
  std::shared_ptr<PinnedBuffer> host_parameters_, host_totals_;
  DeviceBuffer parameters_, sums_, chains_, totals_;
  std::vector<PredictionBuffer> predictions_;
};

}  // namespace srjit
