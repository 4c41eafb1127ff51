// The state of an engine, and the tasks that its calls run: checks, then phases.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine.h"
#include "runtime/evaluation/executor.h"
#include "runtime/platform/guarded.h"
#include "runtime/platform/process.h"

namespace srjit {

using Failures = std::vector<Failure>;

struct Engine::State {
  EngineOptions options;
  std::shared_ptr<Executor> executor;  ///< of all engines that withLimits() made of one
  std::vector<std::string> notices;
  std::size_t population_parts = 0;  ///< EngineParts::population_parts
  const HomeProcess home;

  State() = default;
  /// The same with other limits.
  State(const State& engine, const Limits& limits)
      : options(engine.options),
        executor(engine.executor),
        notices(engine.notices),
        population_parts(engine.population_parts),
        home(engine.home) {
    options.limits = limits;
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();
  /// Errors: kMachine in a child process of the one that made the engine.
  Status checkProcess() const;
  /// Returns `body()`, or the error of checkProcess(), or of what the body throws (platform/guarded.h).
  template <class Body>
  auto guardedCall(Body&& body) const -> decltype(body()) {
    return guarded([&]() -> decltype(body()) {
      if (Status own = checkProcess(); !own) return std::move(own).error();
      return body();
    });
  }
  /// Of a call that begins now.
  Deadline deadline() const { return Deadline(options.limits.max_seconds, options.limits.stop); }
  /// A task of a call that begins now, of predictions without a place.
  Task task(const Program& program, const Dataset& data, std::span<const double> parameters) const {
    return {.program = program, .data = data, .parameters = parameters, .deadline = deadline()};
  }
  /// Whether a call may have `times` times this number of tokens, or outputs. Errors: kLimit.
  Status checkCallNodes(std::size_t found, std::size_t times = 1) const;
};

/// Whether the data are of this engine's device and precision.
Status checkOrigin(const Dataset::State& data, const EngineOptions& engine);
/// Whether the task is one for this engine, with arguments of the right sizes.
Status checkTask(const Task& task, const EngineOptions& engine);
/// Errors: kInvalid for another number of parameters.
Status checkParameterCount(std::size_t given, std::size_t expected);

/// A failure for every expression that needs more variables than `data` has.
Failures failuresForWantOfColumns(const ProgramSource& source, const Dataset::State& data);
/// Both, in order of expression; of several of one expression, the first.
Failures mergeFailures(Failures failures, Failures more);

/// Gives a source its expressions, as ProgramSource::set().
using SetSource = std::function<void(ProgramSource& source, bool in_arena)>;
/// Engine::compile() of the expressions that `set` gives, or of their derivation. If `permitted` is an error,
/// every expression fails with it, and `set` is to give none.
Program compileWith(Engine::State& engine, const CompileOptions& options, const SetSource& set,
                    const Deadline& deadline, const std::optional<Derivation>& derivation = {},
                    const Status& permitted = okStatus());

/// A program of `source` for the device of `program`, and in its tier unless the options have one, with code. If
/// `program` has none, all expressions fail as its own do. Throws an ErrorException (kLimit) at the deadline.
Program makeVariant(Engine::State& engine, const Program::State& program, ProgramSource source,
                    const CompileOptions& options, const Deadline& deadline);
/// The task with the code of its deferred program.
Task withCode(Engine::State& engine, Task task);
/// The task with, if its parameters are several vectors of the program's, the program of as many copies of all
/// expressions. Errors: those of checkTask(), but that a wrong number of parameters is left to it; kLimit.
Result<Task> withVectors(Engine::State& engine, Task task);
/// The task for a derivation of the program of `task`. Errors: those of checkTask(); kLimit.
Result<Task> derivedTask(Engine::State& engine, Task task, const Derivation& derivation);

/// The sums of `quantity` over rows of `data`, derived by parameters.
Derivation derivedSums(Quantity quantity, const Dataset::State& data, const LossOptions& options);
/// Of one expression, from its outputs in a task of derivedSums(): the sums of the terms, and over which rows.
LossSums readSums(std::span<const double> outputs, const Derivation& derivation, const Dataset::State& data);
/// The losses that `options` want, and for Quantity::kGradient their derivatives, from the sums of a derivedTask() or
/// of moments. The task's parameters must still be there for scaled losses: expressions whose loss needs better sums
/// are evaluated again. Errors: those of runSums(), and kLimit at the deadline of the task.
Result<Gradients> readGradients(Engine::State& engine, const Task& task, const LossOptions& options, Sums sums);

/// A caller's array for predictions or derivatives.
struct TaskOutput {
  template <class T>
  explicit TaskOutput(std::span<T> numbers)
      : type(kPrecisionOf<T>), size(numbers.size()), host(reinterpret_cast<std::byte*>(numbers.data())) {}
  TaskOutput(const DeviceMatrix& matrix, std::uint64_t of_stream)
      : type(matrix.type), size(matrix.rows * matrix.columns), device(matrix), stream(of_stream) {}

  Precision type;
  std::size_t size;  ///< numbers
  std::byte* host = nullptr;
  std::optional<DeviceMatrix> device = {};  ///< instead of `host`
  std::uint64_t stream = 0;
};

/// The tasks of the engine's calls: `task` with the program, data and output of the call. Errors: those of the calls.
/// Predictions, or their derivatives.
Result<Task> outputTask(Engine::State& engine, Task task, const TaskOutput& out, std::optional<DerivativesBy> by = {});
Result<Task> gradientTask(Engine::State& engine, Task task, const GradientOptions& options);
/// For the kernels of losses, or a derivedTask().
Result<Task> lossTask(Engine::State& engine, Task task, const LossOptions& options);

/// Runs a task, after checkTask(), with NaN for expressions that failed.
Result<Losses> runTask(Engine::State& engine, Task task);
/// The same for the sums of a derived program, or of moments where flights have no losses, but that values of
/// expressions that failed are unspecified. `failures` are all, in order of expression. The engine must outlive the
/// sums.
Result<Sums> runSums(Engine::State& engine, Task task);
/// The losses of a lossTask().
Result<Losses> runLoss(Engine::State& engine, Task task, const LossOptions& options);
/// The losses in flight of what lossTask() gives.
Result<Pending<Losses>> submitLoss(const std::shared_ptr<Engine::State>& engine, Task task, const LossOptions& options);

/// Leaves a flight, if there is one, to the process that began it: after a fork() it ends in the parent only.
inline void dropIfForked(const Engine::State& engine, std::unique_ptr<Flight>& flight) noexcept {
  if (flight == nullptr || !engine.home.isForked()) return;
  [[maybe_unused]] const auto* const left = flight.release();
}
/// Whether a flight has ended, and waiting for that. A failure ends it, too; its result gives the error.
inline bool hasEnded(const std::unique_ptr<Flight>& flight) {
  if (flight == nullptr) return true;
  const auto ready = guarded([&]() -> Result<bool> { return flight->ready(); });
  return !ready || *ready;
}
inline void awaitEnd(const std::unique_ptr<Flight>& flight) {
  if (flight != nullptr) static_cast<void>(guarded([&] { return flight->wait(), okStatus(); }));
}

}  // namespace srjit
