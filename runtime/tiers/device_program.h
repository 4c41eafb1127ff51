// A program on a GPU: its bytecode, and its machine code as far as it was made.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/code/makers.h"
#include "runtime/code/parts.h"
#include "runtime/engine_options.h"
#include "runtime/evaluation/program_state.h"
#include "runtime/launch/run.h"
#include "runtime/tiers/jobs.h"
#include "runtime/tiers/policy.h"

namespace srjit {

/// The code of each kind that a program has, and records of its evaluations. Thread-safe once
/// compileOnGpu() has returned. Its destructor cancels its jobs, which do not reference it.
class DeviceProgram final : public ProgramCode {
 public:
  DeviceProgram(Tier tier, double expected_evaluations);
  ~DeviceProgram() override;

  Tier tier() const noexcept { return tier_; }

  /// The interpreter's code; null until it is needed.
  std::shared_ptr<const DeviceCode> interpreted() const;
  void setInterpreted(std::shared_ptr<const DeviceCode> code);
  /// Expressions that the interpreter refuses, ascending; none before its code exists. Tier::kAuto compiles them.
  std::vector<std::uint32_t> refused() const;
  bool interpreterRefuses() const;

  /// The graphs that the program began with, if they are for direct or compiled code as `code` says; else null.
  const Graphs* graphs(CodeKind code) const noexcept { return graphs_ && graphs_of_ == code ? &*graphs_ : nullptr; }
  const Graphs& setGraphs(CodeKind code, Graphs graphs) {
    graphs_of_ = code;
    return graphs_.emplace(std::move(graphs));
  }

  /// What its graphs pass; null: nothing.
  const std::shared_ptr<GraphFilter>& filter() const noexcept { return filter_; }
  void setFilter(std::shared_ptr<GraphFilter> filter) { filter_ = std::move(filter); }

  /// The job that makes machine code of a kind, for kernels of `kernels`; new if there was none.
  std::shared_ptr<CodeJob> job(const KernelKind& kernels, CodeKind code);
  ProgramStatus status() const override;

  /// Counts an evaluation. Returns the number expected from now on, this one included: the rest of those that the
  /// caller has announced, or as many as there were, whichever is more.
  double countEvaluation();

  /// Records what evaluates the expressions of the evaluation that begins now, on this device. A change is traced.
  void setServed(const ServedExpressions& served, std::string_view device);
  void setDeviceSeconds(double seconds);
  /// Records the seconds of the device per row that a loss over all rows took by `code`.
  void recordSecondsPerRow(CodeKind code, double seconds);
  /// Whether direct code's best time was longer than the interpreter's; false unless both have been recorded.
  bool directWasSlower() const;
  /// Records why direct code cannot read data like those of the last evaluation; nothing if it can.
  void setDirectRefusal(std::optional<Error> why);

  /// Keeps a run of this program in an engine's `idle` runs, until the program is destroyed.
  void keepRun(const std::shared_ptr<IdleRuns>& idle, std::unique_ptr<DeviceRun> run);

 private:
  const Tier tier_;
  const double expected_evaluations_;
  std::optional<Graphs> graphs_;
  CodeKind graphs_of_ = CodeKind::kInterpreted;  ///< what graphs_ are for
  std::shared_ptr<GraphFilter> filter_;

  mutable std::mutex mutex_;
  std::shared_ptr<const DeviceCode> interpreted_;
  std::vector<std::uint32_t> refused_;
  std::uint64_t evaluations_ = 0;
  ServedExpressions served_;   ///< by the last evaluation that began
  double device_seconds_ = 0;  ///< of the last evaluation that finished
  /// By CodeKind, the least that was recorded.
  std::array<double, kCodeKinds> seconds_per_row_;
  std::optional<Error> direct_refusal_;
  using Jobs = std::vector<std::pair<KernelKind, std::shared_ptr<CodeJob>>>;
  std::array<Jobs, kCodeKinds> jobs_;                            ///< by CodeKind; the one used last is the last
  std::shared_ptr<const void> life_ = std::make_shared<char>();  ///< owns the idle runs
  std::vector<std::weak_ptr<IdleRuns>> idle_;                    ///< of the engines that have some
};

/// The code that an executor on a GPU has made. Precondition: it has made some.
inline DeviceProgram& deviceProgramOf(const Program::State& program) noexcept {
  return static_cast<DeviceProgram&>(*program.code);
}

}  // namespace srjit
