// Puts an evaluation's kernels on the stream.
#pragma once

#include <cstddef>
#include <vector>

#include "compiler/direct/emitter.h"
#include "compiler/interpreter/kernel.h"
#include "runtime/launch/run_memory.h"
#include "runtime/launch/run_plan.h"

namespace srjit {

/// The kernels of one plan, with their arguments. Invariant: after prepare() there is a kernel for each part of the
/// plan's code, in a geometry that any chunk of the memory fits. Not thread-safe. Member functions need a current
/// context, and throw CudaFailure.
class KernelLauncher {
 public:
  /// Both must outlive it, and stay where they are.
  KernelLauncher(const RunPlan& plan, const RunMemory& memory)
      : plan_(plan), memory_(memory), stream_(*plan.queue->stream), element_(plan.elementBytes()) {}

  /// Finds or makes the kernels. Called once, before all others. Errors: those of making kernels; kUnsupported if there
  /// are too many programs and rows for one launch.
  Status prepare();

  /// Puts the kernels of one chunk of rows on the stream; predictions go to `predictions`, sums of a loss to the
  /// memory.
  void launch(const QueueLock&, const DeviceRows& rows, CUdeviceptr predictions = 0);
  /// Puts the kernel on the stream that adds up the sums of a chunk, which is the first or the last of its evaluation.
  void launchTotals(const QueueLock&, const DeviceRows& rows, bool first, bool last) const;

 private:
  /// How the interpreter runs one section.
  struct InterpreterLaunch {
    Kernel kernel;
    InterpreterSection section;
    InterpreterGeometry geometry;
    std::size_t shared_bytes = 0;
  };
  /// The compiled kernels for rows that are in this place, and predictions that go there.
  struct ChunkGraph {
    DeviceRows rows;
    CUdeviceptr predictions;
    Graph graph;
  };

  Status prepareInterpreter(const InterpreterCode& code);
  /// The output arguments, which follow all others, for `put`.
  template <class Put>
  void withResults(const DeviceRows& rows, CUdeviceptr predictions, const Put& put) const;
  void launchInterpreter(const InterpreterLaunch& launch, const DeviceRows& rows, CUdeviceptr predictions) const;
  void launchCompiled(const CompiledCode& code, const DeviceRows& rows, CUdeviceptr predictions);
  /// Gives every compiled kernel's launch to `put`.
  template <class Put>
  void forEachCompiled(const CompiledCode& code, const DeviceRows& rows, CUdeviceptr predictions, const Put& put) const;
  void launchDirectCode(const DirectCode& code, const DeviceRows& rows, CUdeviceptr predictions) const;

  const RunPlan& plan_;
  const RunMemory& memory_;
  const Stream& stream_;
  std::size_t element_;
  std::vector<InterpreterLaunch> interpreters_;
  DirectGrid direct_grid_{};
  Kernel totals_kernel_;
  std::vector<ChunkGraph> graphs_;
};

}  // namespace srjit
