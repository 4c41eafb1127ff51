// With which code a program is evaluated on a GPU; makes that code, now or in the background.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include <tbb/task_arena.h>

#include "runtime/code/calibration.h"
#include "runtime/code/kernel_store.h"
#include "runtime/evaluation/executor.h"
#include "runtime/gpu/queue.h"
#include "runtime/tiers/device_program.h"
#include "runtime/tiers/direct_self_test.h"
#include "runtime/tiers/jobs.h"
#include "runtime/tiers/policy.h"

namespace srjit {

/// Of one engine: asks decideTier() what to do, and has the engine's JobQueue do it. Invariant: it has no state of any
/// program, and each machine code of a program is made by the one job that the program has for it. Bytecode has no job:
/// the calling thread makes it, several threads may do so at once, and the program keeps what the first has made.
/// Thread-safe. Throws CudaFailure, OutOfMemory, std::bad_alloc; the calling thread has a current context.
class TierSelection {
 public:
  using Code = std::shared_ptr<const DeviceCode>;

  /// `arena` must outlive it.
  TierSelection(std::shared_ptr<KernelStore> store, tbb::task_arena& arena, unsigned threads);
  /// Cancels all jobs, and waits for them.
  ~TierSelection() { jobs_.shutDown(); }
  TierSelection(const TierSelection&) = delete;
  TierSelection& operator=(const TierSelection&) = delete;

  /// Makes what a program begins with, as firstCode() says. Adds failures and fills in the info.
  void compileOnGpu(Program::State& state, const CompileOptions& options, const Deadline& deadline,
                    std::shared_ptr<GraphFilter> filter);

  /// As Executor::estimate().
  Estimate estimate(std::size_t expressions, std::size_t tokens, const CompileOptions& options) const;

  DeviceCosts costs() const { return costs_.costs(); }

  /// The code for an evaluation of `kind` on these data. Unless `is_evaluated`, the program is only prepared. Errors:
  /// why the code that the tier demands cannot be made. Throws an ErrorException (kLimit) if making it, or waiting for
  /// it, takes until the deadline; what this call makes is cancelled then.
  Result<Code> codeFor(const Program::State& state, const KernelKind& kind, const DeviceData& data, bool is_evaluated,
                       const Deadline& deadline);

  /// Records the device's seconds for a loss of the program's expressions by `code` over `rows` rows. Leaves out
  /// evaluations that are too small, or by more than one kind of code.
  void recordRunTime(DeviceProgram& program, const DeviceCode& code, std::size_t rows, double seconds);

 private:
  struct Query;

  ExpectedWork workOf(const ProgramSource& source, std::size_t rows, double evaluations) const;
  ExpectedWork workOf(std::size_t expressions, std::size_t tokens, std::size_t rows, double evaluations) const;
  void findFacts(Query& query) const;
  Status await(Query& query, CodeKind code, OnFailure on_failure);
  void startInBackground(const Query& query, CodeKind code);

  CompileOrder orderOf(const ProgramSource& source, GraphFilter* filter, const Deadline& deadline,
                       std::span<const std::uint32_t> range = {}) const;
  Code interpreted(const CompileOrder& order) const;
  Graphs graphsFor(CodeKind code, const CompileOrder& order, const std::atomic<bool>& cancelled);
  Result<Code> make(CodeKind code, const CompileOrder& order, const Graphs* graphs, const KernelKind& kind,
                    std::size_t rows, const std::atomic<bool>& cancelled);
  Code direct(const CompileOrder& order, const Graphs* graphs, const KernelKind& kind, std::size_t rows,
              const std::atomic<bool>& cancelled);
  Code compiled(const CompileOrder& order, const Graphs* graphs, const KernelKind& kind,
                const std::atomic<bool>& cancelled);

  std::shared_ptr<KernelStore> store_;
  DeviceQueue& queue_;  ///< of the store
  unsigned threads_;
  tbb::task_arena& arena_;
  JobQueue jobs_;
  Calibration costs_;
  DirectSelfTest self_test_;
};

}  // namespace srjit
