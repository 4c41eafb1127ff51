// How the parts of Engine's interface run evaluations.
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
#include "runtime/platform/home_process.h"

namespace srjit {

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
  /// What `body()` gives, or the error of checkProcess(), or of what it throws (platform/guarded.h).
  template <class Body>
  auto guardedCall(Body&& body) const -> decltype(body()) {
    return guarded([&]() -> decltype(body()) {
      if (Status own = checkProcess(); !own) return std::move(own).error();
      return body();
    });
  }
  /// Of a call that begins now.
  Deadline deadline() const { return Deadline(options.limits.max_seconds, options.limits.stop); }
  /// Whether a call may have `times` times so many tokens, or outputs. Errors: kLimit.
  Status checkCallNodes(std::size_t found, std::size_t times = 1) const;
};

/// Gives a source its expressions, as ProgramSource::set().
using SetSource = std::function<void(ProgramSource&, ProgramSource::Threads)>;

/// What compileWith() compiles.
struct CompileCall {
  Deadline deadline = {};
  std::optional<Derivation> derivation = {};  ///< what is derived of the expressions, instead of their values
  Status permitted = okStatus();              ///< or why no expression is compiled; `set` is then to give none
};
/// Engine::compile() of the expressions that `set` gives.
Program compileWith(Engine::State& engine, const CompileOptions& options, const SetSource& set,
                    const CompileCall& call);

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
/// A task whose output goes there. Errors: those of the array but for its size (Engine::evaluate()).
Result<Task> taskWithOutput(Engine::State& engine, Program program, const Dataset& data,
                            std::span<const double> parameters, const TaskOutput& out, const Deadline& deadline);

/// Whether the data are of this engine's device and precision.
Status checkOrigin(const Dataset::State& data, const EngineOptions& engine);

/// Whether the task is one for this engine, with arguments of the right sizes.
Status checkTask(const Task& task, const EngineOptions& engine);

/// The program to evaluate with `parameters`: `program`, or, if these are several vectors of its parameters, all of its
/// expressions so many times behind one another. Errors: those of checkTask(), but that a wrong number of parameters is
/// left to it; kLimit.
Result<Program> programOfVectors(Engine::State& engine, const Program& program, const Dataset& data,
                                 std::span<const double> parameters, const Deadline& deadline);

/// Engine::loss().
Result<Losses> runLoss(Engine::State& engine, const Program& program, const Dataset& data,
                       std::span<const double> parameters, const LossOptions& options, const Deadline& deadline);

/// The task of Engine::loss(): for the kernels of losses, or a derivedTask().
Result<Task> lossTask(Engine::State& engine, const Program& program, const Dataset& data,
                      std::span<const double> parameters, const LossOptions& options, const Deadline& deadline);

/// Runs a task, after checkTask(), with NaN for what failed.
Result<Losses> runTask(Engine::State& engine, const Task& task);

/// The same for kPlainSums of a derived program, which is never deferred, but that values of expressions that failed
/// are unspecified. `failures` are all, in order of expression. The engine must outlive the sums.
Result<Sums> runSums(Engine::State& engine, const Task& task);

/// runTask() in flight. Value is Losses, or std::vector<Failure> for predictions.
template <class Value>
Result<Pending<Value>> submitTask(const std::shared_ptr<Engine::State>& engine, Task task);

/// A failure for every expression that needs more variables than `data` has.
std::vector<Failure> failuresForWantOfColumns(const ProgramSource& source, const Dataset::State& data);

/// Both, in order of expression; of several of one expression, the first.
std::vector<Failure> mergeFailures(std::vector<Failure> failures, std::vector<Failure> more);

/// A program of `source` for the device and in the tier of `program`, without code.
std::shared_ptr<Program::State> programLike(const Program::State& program, std::shared_ptr<const ProgramSource> source);

/// Gives a program its code and its failures. Throws an ErrorException (kLimit) at the deadline.
void makeCode(Engine::State& engine, Program::State& program, const CompileOptions& options, const Deadline& deadline);

/// A program for what is derived of the expressions of `source`, in the way of `program`. Throws an ErrorException
/// (kLimit) at the deadline. Whether a call may have so many outputs is for the caller to check.
Program deriveProgram(Engine::State& engine, const ProgramSource& source, const Program::State& program,
                      const Derivation& derivation, const CompileOptions& options, const Deadline& deadline);

/// The sums of `quantity` over rows of `data`, derived by parameters.
Derivation derivedSums(Quantity quantity, const Dataset::State& data, const LossOptions& options);

/// Of one expression, from its outputs in such a task: the sums of the terms, and over which rows.
LossSums readSums(std::span<const double> outputs, const Derivation& derivation, const Dataset::State& data);

/// The task for what is derived of the program of `task`.
Result<Task> derivedTask(Engine::State& engine, Task task, const Derivation& derivation);

/// With the failures of expressions whose variables the data lack: their outputs are NaN.
std::vector<Failure> withMissingColumns(const Task& task, std::vector<Failure> failures);

/// The losses that `options` want, and for Quantity::kGradient their derivatives, from the sums of a derivedTask(),
/// whose parameters must still be there: expressions of which a scaled loss needs better sums are evaluated again.
/// Errors: those of runSums(), and kLimit at the deadline of the task.
Result<Gradients> readGradients(Engine::State& engine, const Task& task, const LossOptions& options, Sums sums);

/// A derivedTask() in flight. Value is Losses or Gradients.
template <class Value>
Result<Pending<Value>> submitSums(const std::shared_ptr<Engine::State>& engine, Task task, const LossOptions& options);

}  // namespace srjit
