// Evaluations: a call starts its task and takes the results, at once or later.
#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/engine/tasks.h"

namespace srjit {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A task that an executor runs, or its result.
struct StartedTask {
  Task task;
  std::unique_ptr<Flight> flight = {};  ///< null: `done` is the result, and failures are in the output
  Losses done = {};
};

/// The losses of a task whose expressions have no code: settle() says which failed.
Losses lossesOfNothing(const Task& task) {
  Losses losses;
  if (task.loss) {
    losses.values.resize(task.program.state().source->outputs(), kNaN);
    losses.valid_rows.resize(losses.values.size());
  }
  return losses;
}

/// Adds the program's failures, and writes NaN for expressions that failed.
void settle(Executor& executor, const Task& task, Losses& losses) {
  losses.failures = mergeFailures(task.program.state().failures, std::move(losses.failures));
  const Dataset::State& data = task.data.state();
  const ProgramSource& source = *task.program.state().source;
  for (const Failure& failure : losses.failures) {
    const std::size_t first = source.outputOffset(failure.expression);
    const std::size_t count = source.outputOffset(failure.expression + 1) - first;
    if (count == 0) continue;  // derivatives by no parameters
    if (task.loss) {
      std::fill_n(losses.values.data() + first, count, kNaN);
      std::fill_n(losses.valid_rows.data() + first, count, 0);
      continue;
    }
    withZeroOf(data.precision, [&]<class T>(T) {
      const std::vector<T> none(count * data.rows, static_cast<T>(kNaN));
      const std::span bytes = std::as_bytes(std::span(none));
      executor.writeOutput(task, first * data.rows * sizeof(T), bytes.data(), bytes.size());
    });
  }
}

Result<StartedTask> startTask(Engine::State& engine, Task task);
Result<Losses> finish(Engine::State& engine, StartedTask& started);
Result<Losses> lossesOf(Engine::State& engine, StartedTask& started, const LossOptions& options);

/// The results of the expressions whose variables the data have, by a program of these.
Result<Losses> runFeasible(Engine::State& engine, const Task& task) {
  Executor& executor = *engine.executor;
  const Program::State& program = task.program.state();
  const ProgramSource& whole = *program.source;
  std::vector<std::uint32_t> expressions;
  std::vector<double> parameters;
  for (std::uint32_t e = 0; e < whole.expressions.size(); ++e) {
    if (whole.expressions[e].variableCount() > task.data.columns()) continue;
    expressions.push_back(e);
    const std::size_t first = whole.parameterOffset(e), last = whole.parameterOffset(e + 1);
    for (const double parameter : task.parameters.subspan(first, last - first)) parameters.push_back(parameter);
  }
  const std::size_t row_bytes = task.data.rows() * static_cast<std::size_t>(bytesOf(task.data.state().precision));
  AlignedBuffer predictions(task.loss ? 0 : expressions.size() * row_bytes);
  Task part = task;
  part.device_out = 0;
  part.out = predictions.data();
  part.parameters = parameters;
  part.program = program.variants.get(expressions, task.deadline, [&] {
    ProgramSource source = whole.emptyLike();
    executor.execute(
        [&] { source.setSelected(whole, expressions.size(), [&](std::size_t i) { return expressions[i]; }); });
    return makeVariant(engine, program, std::move(source), {}, task.deadline);
  });
  part.is_awaited = true;
  Result<StartedTask> started = startTask(engine, std::move(part));
  if (!started) return std::move(started).error();
  Result<Losses> some = task.loss ? lossesOf(engine, *started, *task.loss) : finish(engine, *started);
  if (!some) return some;
  Losses losses = lossesOfNothing(task);
  for (std::size_t i = 0; i < expressions.size(); ++i) {
    const std::size_t e = expressions[i];
    if (task.loss) {
      losses.values[e] = some->values[i];
      losses.valid_rows[e] = some->valid_rows[i];
    } else {
      executor.writeOutput(task, e * row_bytes, predictions.data() + i * row_bytes, row_bytes);
    }
  }
  for (Failure& failure : some->failures) failure.expression = expressions[failure.expression];
  losses.failures = mergeFailures(failuresForWantOfColumns(whole, task.data.state()), std::move(some->failures));
  return losses;
}

/// Whether an executor runs the whole program. Graphs that are derived for the data read no other columns.
bool isFeasible(const Task& task) {
  const Program::State& program = task.program.state();
  return program.made && (program.source->derivation || program.source->variables <= task.data.columns());
}

Result<StartedTask> startTask(Engine::State& engine, Task task) {
  if (Status valid = checkTask(task, engine.options); !valid) return std::move(valid).error();
  StartedTask started{withCode(engine, std::move(task))};
  if (isFeasible(started.task)) {
    Result<std::unique_ptr<Flight>> flight = engine.executor->start(started.task);
    if (!flight) return std::move(flight).error();
    started.flight = std::move(*flight);
    return started;
  }
  started.done = lossesOfNothing(started.task);
  if (started.task.program.state().made) {
    Result<Losses> some = runFeasible(engine, started.task);
    if (!some) return std::move(some).error();
    started.done = std::move(*some);
  }
  settle(*engine.executor, started.task, started.done);
  return started;
}

Result<Sums> takeSums(StartedTask& started) {
  Result<Sums> sums = Sums();
  if (started.flight == nullptr) {
    sums = sumsOf(std::move(started.done));
  } else {
    sums = sumsOf(std::shared_ptr<Flight>(std::move(started.flight)));
  }
  if (sums) sums->failures = mergeFailures(started.task.program.state().failures, std::move(sums->failures));
  return sums;
}

/// Waits for the flight. Its losses are those of the task only where hasLosses().
Result<Losses> finish(Engine::State& engine, StartedTask& started) {
  if (started.flight == nullptr) return std::move(started.done);
  Result<Losses> losses = started.flight->finish();
  if (losses) settle(*engine.executor, started.task, *losses);
  return losses;
}

/// Whether finish() gives losses; otherwise lossesOf() computes them from sums.
bool hasLosses(const StartedTask& started) {
  if (started.task.program.state().source->derivation) return false;
  return started.flight == nullptr || started.flight->hasLosses();
}

Result<Gradients> gradientsOf(Engine::State& engine, StartedTask& started, const LossOptions& options) {
  Result<Sums> sums = takeSums(started);
  if (!sums) return std::move(sums).error();
  return readGradients(engine, started.task, options, std::move(*sums));
}

Result<Losses> lossesOf(Engine::State& engine, StartedTask& started, const LossOptions& options) {
  if (hasLosses(started)) return finish(engine, started);
  Result<Gradients> read = gradientsOf(engine, started, options);
  if (!read) return std::move(read).error();
  return std::move(read->losses);
}

/// The results of a task. Value is Losses, Gradients, or Failures for predictions. `options` are those of its loss.
template <class Value>
Result<Value> takeResult(Engine::State& engine, StartedTask& started, const LossOptions& options) {
  if constexpr (std::is_same_v<Value, Failures>) {
    const ProgramSource& source = *started.task.program.state().source;
    Result<Losses> done = finish(engine, started);
    if (!done) return std::move(done).error();
    if (!source.derivation) return std::move(done->failures);
    return mergeFailures(failuresForWantOfColumns(source, started.task.data.state()), std::move(done->failures));
  } else if constexpr (std::is_same_v<Value, Losses>) {
    return lossesOf(engine, started, options);
  } else {
    return gradientsOf(engine, started, options);
  }
}

template <class Value>
class PendingTask final : public Pending<Value>::State {
 public:
  PendingTask(std::shared_ptr<Engine::State> engine, StartedTask started, LossOptions options)
      : engine_(std::move(engine)), started_(std::move(started)), options_(std::move(options)) {
    Task& task = started_.task;
    const std::optional<Derivation>& derivation = task.program.state().source->derivation;
    // Sums of scaled losses may be evaluated again, when the caller's parameters may be gone.
    const bool is_scaled = derivation ? derivation->isOfScaledLoss() : task.loss && !hasLosses(started_);
    if (is_scaled) parameters_.assign(task.parameters.begin(), task.parameters.end());
    task.parameters = parameters_;
  }
  PendingTask(const PendingTask&) = delete;
  PendingTask& operator=(const PendingTask&) = delete;
  ~PendingTask() override { dropIfForked(*engine_, started_.flight); }

  bool ready() override {
    dropIfForked(*engine_, started_.flight);
    return hasEnded(started_.flight);
  }
  void wait() override {
    dropIfForked(*engine_, started_.flight);
    awaitEnd(started_.flight);
  }
  Result<Value> result() override {
    dropIfForked(*engine_, started_.flight);
    return engine_->guardedCall([&] {
      started_.task.deadline = engine_->deadline();
      return takeResult<Value>(*engine_, started_, options_);
    });
  }

 private:
  std::shared_ptr<Engine::State> engine_;  // outlives the flight
  std::vector<double> parameters_;
  StartedTask started_;
  LossOptions options_;
};

/// take(the started task), by a caller that waits.
template <class Take>
auto runWith(Engine::State& engine, Result<Task> task, const Take& take)
    -> decltype(take(std::declval<StartedTask&>())) {
  if (!task) return std::move(task).error();
  task->is_awaited = true;
  Result<StartedTask> started = startTask(engine, std::move(*task));
  if (!started) return std::move(started).error();
  return take(*started);
}

template <class Value>
Result<Value> runAs(Engine::State& engine, Result<Task> task, const LossOptions& options = {}) {
  return runWith(engine, std::move(task),
                 [&](StartedTask& started) { return takeResult<Value>(engine, started, options); });
}

template <class Value>
Result<Pending<Value>> submitAs(const std::shared_ptr<Engine::State>& engine, Result<Task> task,
                                const LossOptions& options = {}) {
  if (!task) return std::move(task).error();
  Result<StartedTask> started = startTask(*engine, std::move(*task));
  if (!started) return std::move(started).error();
  return Pending<Value>(std::make_unique<PendingTask<Value>>(engine, std::move(*started), options));
}

}  // namespace

Result<Losses> runTask(Engine::State& engine, Task task) {
  return engine.guardedCall(
      [&] { return runWith(engine, std::move(task), [&](StartedTask& started) { return finish(engine, started); }); });
}

Result<Sums> runSums(Engine::State& engine, Task task) {
  return engine.guardedCall(
      [&] { return runWith(engine, std::move(task), [](StartedTask& started) { return takeSums(started); }); });
}

Result<Losses> runLoss(Engine::State& engine, Task task, const LossOptions& options) {
  return engine.guardedCall([&] { return runAs<Losses>(engine, lossTask(engine, std::move(task), options), options); });
}

Result<Pending<Losses>> submitLoss(const std::shared_ptr<Engine::State>& engine, Task task,
                                   const LossOptions& options) {
  return engine->guardedCall([&] { return submitAs<Losses>(engine, std::move(task), options); });
}

namespace {

Result<Failures> runTo(Engine::State& engine, Task task, const TaskOutput& out, std::optional<DerivativesBy> by = {}) {
  return engine.guardedCall([&] { return runAs<Failures>(engine, outputTask(engine, std::move(task), out, by)); });
}

Result<Pending<Failures>> submitTo(const std::shared_ptr<Engine::State>& engine, Task task, const TaskOutput& out,
                                   std::optional<DerivativesBy> by = {}) {
  return engine->guardedCall([&] { return submitAs<Failures>(engine, outputTask(*engine, std::move(task), out, by)); });
}

}  // namespace

Status Engine::prepare(const Program& program, const Dataset& data, const std::optional<LossOptions>& loss) const {
  return state_->guardedCall([&]() -> Status {
    const std::vector<double> parameters(program.parameterOffset(program.size()));
    Result<Task> task = state_->task(program, data, parameters);
    if (loss) task = lossTask(*state_, std::move(*task), *loss);
    if (!task) return std::move(task).error();
    if (Status valid = checkTask(*task, state_->options); !valid) return valid;
    const Task made = withCode(*state_, std::move(*task));
    if (!isFeasible(made)) return okStatus();
    return state_->executor->prepare(made);
  });
}

Result<Losses> Engine::loss(const Program& program, const Dataset& data, std::span<const double> parameters,
                            const LossOptions& options) const {
  return runLoss(*state_, state_->task(program, data, parameters), options);
}

Result<Pending<Losses>> Engine::submitLoss(const Program& program, const Dataset& data,
                                           std::span<const double> parameters, const LossOptions& options) const {
  return state_->guardedCall([&] {
    return submitAs<Losses>(state_, lossTask(*state_, state_->task(program, data, parameters), options), options);
  });
}

Result<Gradients> Engine::gradient(const Program& program, const Dataset& data, std::span<const double> parameters,
                                   const GradientOptions& options) const {
  return state_->guardedCall([&] {
    return runAs<Gradients>(*state_, gradientTask(*state_, state_->task(program, data, parameters), options),
                            options.loss);
  });
}

Result<Pending<Gradients>> Engine::submitGradient(const Program& program, const Dataset& data,
                                                  std::span<const double> parameters,
                                                  const GradientOptions& options) const {
  return state_->guardedCall([&] {
    return submitAs<Gradients>(state_, gradientTask(*state_, state_->task(program, data, parameters), options),
                               options.loss);
  });
}

Result<Failures> Engine::evaluate(const Program& program, const Dataset& data, std::span<const double> parameters,
                                  std::span<float> out) const {
  return runTo(*state_, state_->task(program, data, parameters), TaskOutput(out));
}

Result<Failures> Engine::evaluate(const Program& program, const Dataset& data, std::span<const double> parameters,
                                  std::span<double> out) const {
  return runTo(*state_, state_->task(program, data, parameters), TaskOutput(out));
}

Result<Failures> Engine::evaluate(const Program& program, const Dataset& data, std::span<const double> parameters,
                                  const DeviceMatrix& out, std::uint64_t stream) const {
  return runTo(*state_, state_->task(program, data, parameters), TaskOutput(out, stream));
}

Result<Pending<Failures>> Engine::submitEvaluate(const Program& program, const Dataset& data,
                                                 std::span<const double> parameters, std::span<float> out) const {
  return submitTo(state_, state_->task(program, data, parameters), TaskOutput(out));
}

Result<Pending<Failures>> Engine::submitEvaluate(const Program& program, const Dataset& data,
                                                 std::span<const double> parameters, std::span<double> out) const {
  return submitTo(state_, state_->task(program, data, parameters), TaskOutput(out));
}

Result<Failures> Engine::jacobian(const Program& program, const Dataset& data, std::span<const double> parameters,
                                  std::span<float> out, DerivativesBy by) const {
  return runTo(*state_, state_->task(program, data, parameters), TaskOutput(out), by);
}

Result<Failures> Engine::jacobian(const Program& program, const Dataset& data, std::span<const double> parameters,
                                  std::span<double> out, DerivativesBy by) const {
  return runTo(*state_, state_->task(program, data, parameters), TaskOutput(out), by);
}

Result<Failures> Engine::jacobian(const Program& program, const Dataset& data, std::span<const double> parameters,
                                  const DeviceMatrix& out, std::uint64_t stream, DerivativesBy by) const {
  return runTo(*state_, state_->task(program, data, parameters), TaskOutput(out, stream), by);
}

Result<Pending<Failures>> Engine::submitJacobian(const Program& program, const Dataset& data,
                                                 std::span<const double> parameters, std::span<float> out,
                                                 DerivativesBy by) const {
  return submitTo(state_, state_->task(program, data, parameters), TaskOutput(out), by);
}

Result<Pending<Failures>> Engine::submitJacobian(const Program& program, const Dataset& data,
                                                 std::span<const double> parameters, std::span<double> out,
                                                 DerivativesBy by) const {
  return submitTo(state_, state_->task(program, data, parameters), TaskOutput(out), by);
}

}  // namespace srjit
