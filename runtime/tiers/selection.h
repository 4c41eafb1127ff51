// With which code a program is evaluated on a GPU, and the making of better code meanwhile.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include "runtime/evaluation/executor.h"
#include "runtime/gpu/calibration.h"
#include "runtime/gpu/compile.h"
#include "runtime/gpu/kernel_store.h"
#include "runtime/gpu/queue.h"
#include "runtime/tiers/device_program.h"
#include "runtime/tiers/direct_proof.h"

namespace srjit {

/// The tiers of one engine. Thread-safe. Throws CudaFailure, OutOfMemory, std::bad_alloc; the calling thread has a
/// current context.
class DeviceTiers {
 public:
  /// `arena` must outlive it.
  DeviceTiers(std::shared_ptr<DeviceQueue> queue, std::shared_ptr<KernelCache> cache,
              std::shared_ptr<KernelStore> store, tbb::task_arena& arena, unsigned threads);
  /// Cancels what is being made, and waits for it.
  ~DeviceTiers();

  /// Makes what a program begins with: the interpreter's code, or the graphs that direct code will be made of. Adds
  /// failures and fills in the info.
  void begin(Program::State& state, const CompileOptions& options);

  /// What evaluating and making code cost, as far as it is known now.
  DeviceCosts costs() const { return calibration_.costs(); }

  /// The code for an evaluation of `kind` on these data, which `counts` as one or only prepares. Errors: why the code
  /// that the tier demands cannot be made.
  Result<std::shared_ptr<const DeviceCode>> codeFor(const Program::State& state, const KernelKind& kind,
                                                    const DeviceData& data, bool counts);

  /// What an evaluation by `code` took.
  void learn(const DeviceCode& code, std::size_t rows, double seconds);

 private:
  using Code = std::shared_ptr<const DeviceCode>;
  using Source = std::shared_ptr<const ProgramSource>;
  using Making = DeviceProgram::Making;
  /// What is to be made.
  struct Order {
    KernelKind kind;
    Making making;
    std::size_t rows = 0;  ///< of the data at hand; direct code keeps the shape of the first
  };

  CodeRequest request(const ProgramSource& source, std::span<const std::uint32_t> chosen = {}) const;
  Code encode(const ProgramSource& source);
  Code interpreted(const Program::State& state);
  Result<Code> automatic(const Program::State& state, const KernelKind& kind, const DeviceData& data, double passes);
  Result<Code> codeOf(const Program::State& state, const Order& order);
  /// In the background. With `worth`, looks into the cache first, and makes the code only if what is missing is worth
  /// it.
  using Worth = std::function<bool(const MissingKernels&)>;
  void startMaking(const Program::State& state, const Order& order, const Worth& worth = nullptr);
  bool looksWorth(const Source& source, const KernelKind& kind, const Worth& worth, CompileJob& job);
  void compileIfWorth(const Program::State& state, const KernelKind& kind, double serving, double passes,
                      double node_rows);
  void make(const Source& source, const std::shared_ptr<DeviceProgram>& program, const Order& order, CompileJob& job);
  KernelPlan planOf(const ProgramSource& source, std::span<const std::uint32_t> chosen,
                    const std::atomic<bool>& cancelled) const;
  Code makeCompiled(const ProgramSource& source, std::span<const std::uint32_t> chosen, const KernelPlan* plan,
                    const KernelKind& kind, const CompileJob& job);
  void writeCosts();
  Result<Code> makeDirect(const ProgramSource& source, const ProgramGraphs* graphs, const Order& order,
                          const CompileJob& job);

  std::shared_ptr<DeviceQueue> queue_;
  std::shared_ptr<KernelStore> store_;
  unsigned threads_;
  Calibration calibration_;
  DirectProof proof_;
  std::atomic<bool> is_writing_ = false;  ///< the costs, in the background, or about to
  std::atomic<bool> ending_ = false;      ///< stops the proof, which other programs need when one dies
  tbb::task_arena& arena_;
  tbb::task_arena background_;
  std::unique_ptr<tbb::task_group> jobs_ = std::make_unique<tbb::task_group>();
  std::mutex started_mutex_;
  std::vector<std::weak_ptr<CompileJob>> started_;  ///< in the background
};

}  // namespace srjit
