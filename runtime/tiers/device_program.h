// A program on a GPU: its form for the interpreter, and machine code as far as it was made.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/engine_options.h"
#include "runtime/gpu/code.h"
#include "runtime/gpu/compile.h"
#include "runtime/gpu/direct.h"
#include "runtime/gpu/idle_runs.h"
#include "runtime/gpu/kernel_plan.h"
#include "runtime/program.h"
#include "runtime/results.h"

namespace srjit {

/// Machine code of one kind while it is made, perhaps in the background, and afterwards. Thread-safe.
struct CompileJob {
  std::atomic<bool> cancelled = false;

  std::mutex mutex;
  std::condition_variable finished;
  bool running = false;                    ///< looking included
  std::shared_ptr<const DeviceCode> code;  ///< null: not made yet, or `error`
  std::optional<Error> error;
  double seconds = 0;
  /// What a look into the cache found before `code` was made; nothing if nobody has looked.
  std::optional<MissingKernels> missing;
};

/// The making of a job, which ends with this object, whatever happens: a job never runs for ever.
class RunningJob {
 public:
  /// Makes the job run, whatever came of it before; its mutex is held.
  explicit RunningJob(std::shared_ptr<CompileJob> job) noexcept;
  /// If neither code nor an error, nor what is missing, was found out, memory was short.
  ~RunningJob();
  RunningJob(const RunningJob&) = delete;
  RunningJob& operator=(const RunningJob&) = delete;

  CompileJob& operator*() const noexcept { return *job_; }

 private:
  std::shared_ptr<CompileJob> job_;
};

/// Thread-safe. Cancels its jobs when it dies; they hold nothing of it.
class DeviceProgram {
 public:
  DeviceProgram(Tier tier, double expected_passes) : tier_(tier), expected_passes_(expected_passes) {}
  ~DeviceProgram();

  Tier tier() const noexcept { return tier_; }

  /// The interpreter's code; null until it is needed.
  std::shared_ptr<const DeviceCode> interpreted() const;
  void setInterpreted(std::shared_ptr<const DeviceCode> code);
  /// Expressions that the interpreter refuses, ascending; Tier::kAuto compiles them.
  std::span<const std::uint32_t> refused() const noexcept { return refused_; }

  /// Graphs that were made for direct code at the beginning; null if it was not wanted then.
  const ProgramGraphs* graphs() const noexcept { return graphs_ ? &*graphs_ : nullptr; }
  void setGraphs(ProgramGraphs graphs) { graphs_.emplace(std::move(graphs)); }
  /// The same for compiled code of all expressions.
  const KernelPlan* plan() const noexcept { return plan_ ? &*plan_ : nullptr; }
  void setPlan(KernelPlan plan) { plan_.emplace(std::move(plan)); }

  /// What jobs make: code by LLVM, of all expressions or of those that the interpreter refuses, or direct code.
  enum class Making { kCompiled, kCompiledRefused, kDirect };
  static constexpr std::size_t kMakings = 3;
  /// The job of a kind, new if there was none.
  std::shared_ptr<CompileJob> job(const KernelKind& kind, Making making);
  ProgramStatus status() const;

  /// Counts an evaluation; returns how many are still to be expected, it included: what the caller has announced, or as
  /// many as there were.
  double countEvaluation();

  /// Tells what evaluates the expressions of the evaluation that begins now.
  void setServed(const ServedExpressions& served);
  void setDeviceSeconds(double seconds);
  /// Why direct code does not serve data like those of the last evaluation; nothing if it may.
  void setDirectRefusal(std::optional<Error> why);

  /// Keeps a run of this program in an engine's `idle` runs, until the program dies.
  void keepRun(const std::shared_ptr<IdleRuns>& idle, std::unique_ptr<DeviceRun> run);

 private:
  const Tier tier_;
  const double expected_passes_;
  std::optional<ProgramGraphs> graphs_;
  std::optional<KernelPlan> plan_;

  mutable std::mutex mutex_;
  std::shared_ptr<const DeviceCode> interpreted_;
  std::vector<std::uint32_t> refused_;
  std::uint64_t evaluations_ = 0;
  ServedExpressions served_;   ///< by the last evaluation that began
  double device_seconds_ = 0;  ///< of the last evaluation that finished
  std::optional<Error> direct_refusal_;
  using Jobs = std::vector<std::pair<KernelKind, std::shared_ptr<CompileJob>>>;
  std::array<Jobs, kMakings> jobs_;                              ///< by Making; the one used last is the last
  std::shared_ptr<const void> life_ = std::make_shared<char>();  ///< owns the idle runs
  std::vector<std::weak_ptr<IdleRuns>> idle_;                    ///< of the engines that have some
};

}  // namespace srjit
