// One evaluation on a GPU, with its buffers; used again for the next of the same code, data and kind.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compiler/direct/emitter.h"
#include "compiler/interpreter/kernel.h"
#include "runtime/engine_options.h"
#include "runtime/gpu/code.h"
#include "runtime/gpu/data.h"
#include "runtime/gpu/download.h"
#include "runtime/platform/aligned_buffer.h"
#include "runtime/program.h"
#include "runtime/results.h"

namespace srjit {

/// How the interpreter runs one section.
struct InterpreterLaunch {
  Kernel kernel;
  InterpreterSection section;
  InterpreterGeometry geometry;
  std::size_t shared_bytes = 0;
};

/// The geometry for `rows` rows at once: rows a thread and row_warps so that few threads idle, programs a warp so that
/// every multiprocessor gets several blocks and a block's tokens are a small part of its memory. Sections with long
/// programs get a window.
InterpreterGeometry chooseGeometry(const InterpreterCode& code, const InterpreterSection& section, std::size_t rows,
                                   Precision precision, const DeviceLimits& limits);

/// What an evaluation is of. Two of the same plan can use the same DeviceRun.
struct RunPlan {
  std::shared_ptr<DeviceQueue> queue;
  std::shared_ptr<KernelStore> store;
  std::shared_ptr<const DeviceCode> code;
  const Dataset::State* data;  ///< kept alive by whoever evaluates; dangles between evaluations
  std::uint64_t data_serial;
  KernelKind kind;
  std::size_t expressions;                     ///< of the program
  std::optional<DirectGrid> direct_grid = {};  ///< none: directGrid()
  /// Whether predictions of expression e go to column e of the data, resident ones, instead of to the host; all rows
  /// in one chunk.
  bool into_columns = false;

  bool same(const RunPlan& other) const {
    return queue == other.queue && code == other.code && data_serial == other.data_serial && kind == other.kind &&
           direct_grid == other.direct_grid && into_columns == other.into_columns;
  }
};

/// Not thread-safe. Throws CudaFailure; member functions need a current context. Work that was submitted is waited for
/// before a run is dropped: its pinned memory is then used again.
class DeviceRun {
 public:
  /// Finds or makes the kernels and takes memory, for chunks of rows that shrink until they fit into what is there, at
  /// most `budget` bytes. Errors: those of making kernels; kMachine if the smallest chunk does
  /// not fit, with the bytes wanted and free.
  static Result<std::unique_ptr<DeviceRun>> create(RunPlan plan, std::size_t budget);

  const RunPlan& plan() const noexcept { return plan_; }
  /// Device memory that it holds.
  std::size_t deviceBytes() const noexcept;
  /// To be called before each evaluation but the first, with the data of the plan.
  void use(const Dataset::State& data) { plan_.data = &data; }

  /// Puts all work of a loss on the stream. `parameters` are read before it returns.
  void submitLoss(std::span<const double> parameters);
  /// Puts the kernels on the stream that fill the plan's columns. They have no parameters of a caller.
  void submitColumns();
  bool ready() const { return done_.ready(); }
  void wait() const;
  /// Losses as large as they will be, with all rows valid: to be taken while the device computes, since fresh memory
  /// takes longer than what is written there. Throws std::bad_alloc.
  Losses emptyLosses() const;
  /// After submitLoss and wait(): the values, into what emptyLosses() of this run gave; in parallel on the thread's
  /// arena.
  void readLosses(const LossOptions& options, Losses& losses) const;

  /// Predictions of expression e at out + e * rows; waits. Copies in parallel on the thread's arena.
  void evaluate(std::span<const double> parameters, std::byte* out);

  /// Seconds that the device took for the kernels of the last evaluation, after it was waited for: the sum over its
  /// chunks of rows, without what passed between them.
  double kernelSeconds() const;

 private:
  explicit DeviceRun(RunPlan plan);
  Status prepare(std::size_t budget);
  bool takeMemory(std::size_t budget, bool last_try);
  void takePredictionBuffers(std::size_t count, std::size_t bytes, std::size_t budget, bool last_try);
  std::size_t channels() const;

  template <class Body>
  void settlingOnFailure(const Body& body);
  void enqueueLoss();
  void predict(std::span<const double> parameters, std::byte* out);
  PredictionChunk launchChunk(std::size_t chunk);
  void copyParameters();
  DeviceRows beginChunk(std::size_t chunk);
  void endChunk();
  /// Where kernels put what they give: the arguments behind all others, for `put`.
  template <class Put>
  void withResults(const DeviceRows& rows, CUdeviceptr predictions, const Put& put);
  void launch(const DeviceRows& rows, CUdeviceptr predictions = 0);
  void launchInterpreter(const InterpreterLaunch& launch, const DeviceRows& rows, CUdeviceptr predictions);
  void launchCompiled(const DeviceRows& rows, CUdeviceptr predictions);
  /// Gives every compiled kernel's launch to `put`.
  template <class Put>
  void forEachCompiled(const DeviceRows& rows, CUdeviceptr predictions, const Put& put);
  void launchDirectCode(const DeviceRows& rows, CUdeviceptr predictions);
  void launchTotals(const DeviceRows& rows, bool first, bool last);
  std::size_t chunkQuantum() const;
  std::size_t chunks() const { return ceilDivide(plan_.data->rows, chunk_rows_); }
  std::size_t predictionPitch() const {
    return (plan_.into_columns ? plan_.data->column_stride : roundUp(chunk_rows_, 4)) * element_;
  }

  RunPlan plan_;
  DeviceQueue& queue_;  ///< the plan's
  std::size_t element_;
  std::vector<InterpreterLaunch> interpreters_;
  DirectGrid direct_grid_{};
  Kernel totals_kernel_;
  std::size_t chunk_rows_ = 0;

  std::shared_ptr<PinnedBuffer> host_parameters_, host_totals_;
  DeviceBuffer parameters_, sums_, chains_, totals_;
  /// Predictions of chunks, which take turns; with one alone, the next chunk's kernels wait until it was copied out.
  struct PredictionBuffer {
    DeviceBuffer memory;
    Event ready;
  };
  std::vector<PredictionBuffer> predictions_;
  std::optional<Download> download_;
  /// The compiled kernels for rows that are in this place, and predictions that go there.
  struct ChunkGraph {
    DeviceRows rows;
    CUdeviceptr predictions;
    Graph graph;
  };
  std::vector<ChunkGraph> graphs_;
  /// Recorded before and after the kernels of a chunk.
  struct ChunkTime {
    Event begin, end;
  };
  std::vector<ChunkTime> times_;  ///< of all chunks
  std::size_t timed_ = 0;         ///< chunks that the last evaluation has begun
  Event done_;
};

}  // namespace srjit
