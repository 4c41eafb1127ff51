// One evaluation on a GPU, used again for the next of the same plan, and runs that are kept for that.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compiler/interpreter/kernel.h"
#include "ir/numeric.h"
#include "runtime/code/parts.h"
#include "runtime/cuda/context.h"
#include "runtime/engine_options.h"
#include "runtime/evaluation/executor.h"
#include "runtime/gpu/download.h"
#include "runtime/launch/run_memory.h"
#include "runtime/results.h"

namespace srjit {

/// Memory and kernels of one plan, which at most one evaluation uses at a time. Invariant: there is a kernel for each
/// part of the plan's code, in a geometry that any chunk of the memory fits. A run keeps no data: `data` of all
/// functions are those of the plan's serial, and must live until the work was waited for. Not thread-safe. Throws
/// CudaFailure; member functions need a current context.
class DeviceRun {
 public:
  /// Finds or makes the kernels and takes memory, at most `budget` bytes of the device (RunMemory); many literals are
  /// written in parallel on the thread's arena. Errors: those of making kernels; kUnsupported for too many programs and
  /// rows for one launch.
  static Result<std::unique_ptr<DeviceRun>> create(RunPlan plan, const Dataset::State& data, std::size_t budget);

  /// Waits for work that was submitted and not waited for, also because a wait failed: its memory, and what its data
  /// have, is then used again.
  ~DeviceRun();
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;

  const RunPlan& plan() const noexcept { return plan_; }
  /// Device memory that it holds.
  std::size_t deviceBytes() const noexcept { return memory_.bytes(); }

  /// Puts all work of a loss on the stream. `parameters` are read before it returns. Here and in evaluate(), the
  /// deadline is checked before each chunk of rows; once it is over, this waits for launched work and throws an
  /// ErrorException (kLimit).
  void submitLoss(const Dataset::State& data, std::span<const double> parameters, const Deadline& deadline = {});
  /// Puts the kernels on the stream that fill the plan's columns. They have no parameters of a caller.
  void submitColumns(const Dataset::State& data);
  bool ready();
  void wait();
  /// Losses as large as they will be, with all rows valid. To be taken while the device computes, since fresh memory
  /// takes longer than the writing. Throws std::bad_alloc.
  Losses emptyLosses() const;
  /// After submitLoss() and wait(): writes the values into what emptyLosses() of this run gave; in parallel on the
  /// thread's arena.
  void readLosses(const Dataset::State& data, const LossOptions& options, Losses& losses) const;
  /// Instead: the sums where the device has written them, channel after channel (LossSpec) those of all outputs, for
  /// the caller to change; valid until the next submitLoss().
  std::span<double> totals();

  /// Predictions of expression e at e * rows of `out`, whose pitch is that; waits. Copies in parallel on the thread's
  /// arena.
  void evaluate(const Dataset::State& data, std::span<const double> parameters, CopyEnd out,
                const Deadline& deadline = {});

  /// Seconds that the device took for the kernels of the last evaluation, after it was waited for: the sum over its
  /// chunks of rows, without the time between them.
  double kernelSeconds() const;
  /// Tells the trace of it, if something traces.
  void trace() const noexcept;

 private:
  struct InterpreterLaunch;
  struct ChunkGraph;

  DeviceRun(RunPlan plan, const Dataset::State& data, std::size_t budget);

  Status prepareKernels();
  Status prepareInterpreter(const InterpreterCode& code);
  void launch(const DeviceRows& rows, CUdeviceptr predictions = 0);
  void launchTotals(const DeviceRows& rows, bool first, bool last) const;
  template <class Put>
  void withResults(const DeviceRows& rows, CUdeviceptr predictions, const Put& put) const;
  void launchInterpreter(const InterpreterLaunch& launch, const DeviceRows& rows, CUdeviceptr predictions) const;
  template <class Put>
  void forEachCompiled(const CompiledCode& code, const DeviceRows& rows, CUdeviceptr predictions, const Put& put) const;
  void launchCompiled(const CompiledCode& code, const DeviceRows& rows, CUdeviceptr predictions);
  void launchDirect(const DirectCode& code, const DeviceRows& rows, CUdeviceptr predictions) const;

  template <class Body>
  void settlingOnFailure(const Body& body);
  void settle() noexcept;
  void fillParameters(std::span<const double> parameters);
  template <class Body>
  void inChunk(const QueueLock& lock, const Dataset::State& data, std::size_t chunk, const Body& body);
  PredictionChunk launchPredictions(const Dataset::State& data, std::size_t chunk);
  void noteClocks(const QueueLock& lock) noexcept;
  void tell() const;

  const RunPlan plan_;
  DeviceQueue& queue_;  ///< the store's
  const std::size_t element_;
  std::uint64_t target_centre_ = 0;  ///< its bits in the precision, the lowest ones: of moments
  bool in_flight_ = false;           ///< work is on the streams that was not waited for
  Event done_;
  RunMemory memory_;
  std::vector<InterpreterLaunch> interpreters_;  ///< how the interpreter runs each section
  DirectGrid direct_grid_{};
  Kernel totals_kernel_;
  std::vector<ChunkGraph> graphs_;
  std::optional<Download> download_;
  std::shared_ptr<const DeviceQueue::ClockPair> clocks_;  ///< of the last evaluation, if something traced
  std::vector<std::pair<Event, Event>> times_;            ///< of all chunks: before and after the kernels
  std::size_t timed_ = 0;                                 ///< chunks that the last evaluation has begun
};

/// Drops the least recently used when they take more device memory than allowed. Thread-safe; dropped runs are
/// destroyed outside of its lock.
class IdleRuns {
 public:
  explicit IdleRuns(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  /// A run that fits this plan; null if none does.
  std::unique_ptr<DeviceRun> take(const RunPlan& plan);
  /// Keeps it, whatever its size, and drops others until they fit. It is of no use once `owner` has expired.
  void keep(std::unique_ptr<DeviceRun> run, std::weak_ptr<const void> owner);

  void dropOrphans();
  void clear();
  /// Of device memory.
  std::size_t bytes() const;

 private:
  using Entries = std::list<std::pair<std::unique_ptr<DeviceRun>, std::weak_ptr<const void>>>;  ///< with the owners
  void move(Entries::iterator entry, Entries& to);

  const std::size_t max_bytes_;
  mutable std::mutex mutex_;
  Entries entries_;  ///< the one used last is the last
  std::size_t bytes_ = 0;
};

/// The geometry for `rows` rows at once: rows per thread and row_warps so that few threads idle, programs per warp so
/// that every multiprocessor gets several blocks and a block's tokens are a small part of its memory. Sections with
/// long programs get a window.
InterpreterGeometry chooseGeometry(const InterpreterCode& code, const InterpreterSection& section, std::size_t rows,
                                   Precision precision, const DeviceLimits& limits);

}  // namespace srjit
