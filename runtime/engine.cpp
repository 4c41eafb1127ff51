#include "runtime/engine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include <tbb/task_arena.h>

#include "ir/text/lexer.h"
#include "ir/token_errors.h"
#include "runtime/engine_parts.h"
#include "runtime/engine_tasks.h"
#include "runtime/evaluation/loss_terms.h"
#include "runtime/evaluation/population_parts.h"
#include "runtime/platform/guarded.h"
#include "runtime/platform/trace.h"
#include "runtime/pool/make_executor.h"

namespace srjit {

// In the child of a fork() there are no threads that the executor's end could wait for.
Engine::State::~State() {
  if (home.isForked()) {
    // Leaves the executor without an end, as it is.
    alignas(std::shared_ptr<Executor>) std::byte left[sizeof executor];
    std::construct_at(reinterpret_cast<std::shared_ptr<Executor>*>(left), std::move(executor));
  }
}

Status Engine::State::checkProcess() const {
  if (!home.isForked()) return okStatus();
  return Error{Errc::kMachine, "an engine that was made before this process was forked", {}};
}

Status Engine::State::checkCallNodes(std::size_t found, std::size_t times) const {
  return srjit::checkCallNodes(found, times, options.limits.max_call_nodes);
}

namespace {

Status checkLimits(const Limits& limits) {
  if (limits.max_seconds >= 0) return okStatus();
  return Error{Errc::kInvalid, fmt::format("max_seconds is {}, expected 0 or more", limits.max_seconds), {}};
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
using Failures = std::vector<Failure>;

template <class Value>
Error mismatch(const char* what, Value other, Value own) {
  return {Errc::kInvalid, fmt::format("{} in {}, but the engine computes in {}", what, nameOf(other), nameOf(own)), {}};
}

}  // namespace

Result<Task> taskWithOutput(Engine::State& engine, Program program, const Dataset& data,
                            std::span<const double> parameters, const TaskOutput& out, const Deadline& deadline) {
  if (out.type != engine.options.precision) return mismatch("output", out.type, engine.options.precision);
  Task task{.program = std::move(program),
            .data = data,
            .parameters = parameters,
            .out = out.host,
            .loss = {},
            .deadline = deadline};
  if (!out.device || out.size == 0) return task;
  const std::ptrdiff_t element = bytesOf(out.type);
  if (out.device->column_stride != element ||
      out.device->row_stride != element * static_cast<std::ptrdiff_t>(out.device->columns)) {
    return Error{Errc::kInvalid,
                 fmt::format("output with strides of {} and {} bytes, expected adjacent numbers",
                             out.device->row_stride, out.device->column_stride),
                 {}};
  }
  if (Status own = engine.checkProcess(); !own) return std::move(own).error();
  if (Status claimed = engine.executor->claimOutput(*out.device, out.stream); !claimed) {
    return std::move(claimed).error();
  }
  task.device_out = out.device->pointer;
  return task;
}

Status checkOrigin(const Dataset::State& data, const EngineOptions& engine) {
  if (data.precision != engine.precision) return mismatch("data", data.precision, engine.precision);
  if (data.device == engine.device) return okStatus();
  return Error{
      Errc::kInvalid, fmt::format("data on {}, but the engine's device is {}", data.device, engine.device), {}};
}

Status checkTask(const Task& task, const EngineOptions& engine) {
  const ProgramSource& made = *task.program.state().source;
  if (made.precision != engine.precision) return mismatch("a program", made.precision, engine.precision);
  if (made.math != engine.math) return mismatch("a program", made.math, engine.math);
  const Dataset::State& data = task.data.state();
  if (data.precision != engine.precision) return mismatch("data", data.precision, engine.precision);
  const std::string& device = task.program.state().device;
  if (device != engine.device || data.device != engine.device) {
    return Error{Errc::kInvalid,
                 fmt::format("a program for {} and data on {}, but the engine's device is {}", device, data.device,
                             engine.device),
                 {}};
  }
  const std::optional<std::uint64_t>& made_for = task.program.state().data_serial;
  if (made_for && *made_for != data.serial) {
    return Error{Errc::kInvalid, "a program that was made for another data set (CompileOptions::data)", {}};
  }
  const std::size_t expected = task.program.parameterOffset(task.program.size());
  if (task.parameters.size() != expected) {
    return wrongParameterCount(task.parameters.size(), expected);
  }
  return task.loss ? checkLoss(*task.loss, data, engine.limits) : okStatus();
}

namespace {

/// The task of Engine::evaluate().
Result<Task> predictionTask(Engine::State& engine, const Program& program, const Dataset& data,
                            std::span<const double> parameters, const TaskOutput& out) {
  const Deadline deadline = engine.deadline();
  Result<Program> all = programOfVectors(engine, program, data, parameters, deadline);
  if (!all) return std::move(all).error();
  const std::size_t expressions = all->size();
  Result<Task> task = taskWithOutput(engine, std::move(*all), data, parameters, out, deadline);
  if (task && out.size != expressions * data.rows()) {
    return Error{
        Errc::kInvalid,
        fmt::format("output of {} numbers, expected {} expressions x {} rows", out.size, expressions, data.rows()),
        {}};
  }
  return task;
}

}  // namespace

Failures mergeFailures(Failures failures, Failures more) {
  failures.insert(failures.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  std::stable_sort(failures.begin(), failures.end(),
                   [](const Failure& a, const Failure& b) { return a.expression < b.expression; });
  const auto repeated = std::unique(failures.begin(), failures.end(),
                                    [](const Failure& a, const Failure& b) { return a.expression == b.expression; });
  failures.erase(repeated, failures.end());
  return failures;
}

namespace {

/// Failed expressions get NaN.
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

/// What is given for expressions that have no code; settle() says which failed.
Losses lossesOfNothing(const Task& task) {
  Losses losses;
  if (task.loss) {
    losses.values.resize(task.program.state().source->outputs(), kNaN);
    losses.valid_rows.resize(losses.values.size());
  }
  return losses;
}

Program makeFeasible(Executor& executor, const Program::State& program, const std::vector<std::uint32_t>& expressions,
                     const Deadline& deadline) {
  auto source = std::make_shared<ProgramSource>(program.source->emptyLike());
  executor.execute(
      [&] { source->setSelected(*program.source, expressions.size(), [&](std::size_t i) { return expressions[i]; }); });
  auto part = programLike(program, std::move(source));
  executor.compile(*part, {}, deadline);
  return Program(std::move(part));
}

}  // namespace

Failures failuresForWantOfColumns(const ProgramSource& source, const Dataset::State& data) {
  if (source.expressions.variableCount() <= data.columns) return {};
  const std::string names = data.names.empty() ? "" : ": " + text::listNames(data.names.names());
  Failures failures;
  for (std::size_t e = 0; e < source.expressions.size(); ++e) {
    const std::uint32_t variables = source.expressions[e].variableCount();
    if (variables <= data.columns) continue;
    const std::string message = fmt::format("variable x{}, but the data has {} variable{}{}", variables - 1,
                                            data.columns, data.columns == 1 ? "" : "s", names);
    failures.push_back({e, Error{Errc::kInvalid, message, {}}});
  }
  return failures;
}

namespace {

Result<Losses> runFeasible(Executor& executor, const Task& task) {
  const Program::State& program = task.program.state();
  std::vector<std::uint32_t> expressions;
  for (std::uint32_t e = 0; e < program.source->expressions.size(); ++e) {
    if (program.source->expressions[e].variableCount() <= task.data.columns()) expressions.push_back(e);
  }
  const Program feasible = program.variants.get(
      expressions, task.deadline, [&] { return makeFeasible(executor, program, expressions, task.deadline); });
  std::vector<double> parameters;
  for (const std::uint32_t e : expressions) {
    const std::size_t first = task.program.parameterOffset(e), last = task.program.parameterOffset(e + 1);
    for (const double parameter : task.parameters.subspan(first, last - first)) parameters.push_back(parameter);
  }
  const std::size_t row_bytes = task.data.rows() * static_cast<std::size_t>(bytesOf(task.data.state().precision));
  AlignedBuffer predictions(task.loss ? 0 : expressions.size() * row_bytes);
  const Task part{.program = feasible,
                  .data = task.data,
                  .parameters = parameters,
                  .out = predictions.data(),
                  .loss = task.loss,
                  .deadline = task.deadline};
  Result<Losses> some = executor.run(part);
  if (!some) return some;
  settle(executor, part, *some);
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
  losses.failures =
      mergeFailures(failuresForWantOfColumns(*program.source, task.data.state()), std::move(some->failures));
  return losses;
}

/// The task with the program that has the code of its deferred one.
Task withCode(Engine::State& engine, Task task) {
  const Program::State& program = task.program.state();
  Program with_code = program.variants.get({}, task.deadline, [&] {
    const auto state = programLike(program, program.source);
    makeCode(engine, *state, *program.deferred, task.deadline);
    return Program(state);
  });
  task.program = std::move(with_code);
  return task;
}

/// Whether the executor can run the whole program. Graphs that are derived for the data read no other columns.
bool isFeasible(const Task& task) {
  const Program::State& program = task.program.state();
  return program.made && (program.source->derivation || program.source->variables <= task.data.columns());
}

}  // namespace

Result<Losses> runTask(Engine::State& engine, const Task& task) {
  return engine.guardedCall([&]() -> Result<Losses> {
    if (Status valid = checkTask(task, engine.options); !valid) return std::move(valid).error();
    if (task.program.state().deferred) return runTask(engine, withCode(engine, task));
    Result<Losses> losses = isFeasible(task)            ? engine.executor->run(task)
                            : task.program.state().made ? runFeasible(*engine.executor, task)
                                                        : lossesOfNothing(task);
    if (losses) settle(*engine.executor, task, *losses);
    return losses;
  });
}

Result<Sums> runSums(Engine::State& engine, const Task& task) {
  return engine.guardedCall([&]() -> Result<Sums> {
    if (Status valid = checkTask(task, engine.options); !valid) return std::move(valid).error();
    Task own = task;
    own.is_awaited = true;
    Result<std::unique_ptr<Flight>> flight = std::unique_ptr<Flight>();
    if (isFeasible(task)) flight = engine.executor->start(std::move(own));
    if (!flight) return std::move(flight).error();
    Result<Sums> sums = *flight == nullptr ? sumsOf(lossesOfNothing(task)) : sumsOf(std::move(*flight));
    if (sums) sums->failures = mergeFailures(task.program.state().failures, std::move(sums->failures));
    return sums;
  });
}

namespace {

/// What submit gives: a flight, or what is known already.
template <class Value>
class EnginePending final : public Pending<Value>::State {
 public:
  EnginePending(std::shared_ptr<Engine::State> engine, Task task, std::unique_ptr<Flight> flight)
      : engine_(std::move(engine)), task_(std::move(task)), flight_(std::move(flight)) {}
  explicit EnginePending(Result<Losses> done) : done_(std::move(done)) {}
  EnginePending(const EnginePending&) = delete;
  EnginePending& operator=(const EnginePending&) = delete;
  ~EnginePending() override { dropIfForked(); }

  // A failure ends the work, too; result() gives it.
  bool ready() override {
    dropIfForked();
    if (flight_ == nullptr) return true;
    const auto ready = guarded([&]() -> Result<bool> { return flight_->ready(); });
    return !ready || *ready;
  }
  void wait() override {
    dropIfForked();
    if (flight_ == nullptr) return;
    static_cast<void>(guarded([&] { return flight_->wait(), okStatus(); }));
  }
  Result<Value> result() override {
    dropIfForked();
    if (!done_) {
      done_.emplace(engine_->guardedCall([&]() -> Result<Losses> {
        Result<Losses> losses = flight_->finish();
        if (losses) settle(*engine_->executor, *task_, *losses);
        return losses;
      }));
    }
    if (!*done_) return std::move(*done_).error();
    if constexpr (std::is_same_v<Value, Losses>) {
      return std::move(**done_);
    } else {
      return std::move((*done_)->failures);
    }
  }

 private:
  // A flight that began before this process was forked ends in the parent alone.
  void dropIfForked() noexcept {
    if (flight_ == nullptr || !engine_->home.isForked()) return;
    [[maybe_unused]] const auto* const left = flight_.release();
  }

  std::shared_ptr<Engine::State> engine_;  // outlives the flight
  std::optional<Task> task_;
  std::unique_ptr<Flight> flight_;
  std::optional<Result<Losses>> done_;
};

}  // namespace

template <class Value>
Result<Pending<Value>> submitTask(const std::shared_ptr<Engine::State>& engine, Task task) {
  return engine->guardedCall([&]() -> Result<Pending<Value>> {
    if (Status valid = checkTask(task, engine->options); !valid) return std::move(valid).error();
    if (task.program.state().deferred) task = withCode(*engine, std::move(task));
    if (!isFeasible(task)) {
      Result<Losses> losses = runTask(*engine, task);
      if (!losses) return std::move(losses).error();
      return Pending<Value>(std::make_unique<EnginePending<Value>>(std::move(losses)));
    }
    auto flight = engine->executor->start(task);
    if (!flight) return std::move(flight).error();
    return Pending<Value>(std::make_unique<EnginePending<Value>>(engine, std::move(task), std::move(*flight)));
  });
}

template Result<Pending<Losses>> submitTask(const std::shared_ptr<Engine::State>&, Task);
template Result<Pending<Failures>> submitTask(const std::shared_ptr<Engine::State>&, Task);

namespace {

Result<Failures> evaluate(Engine::State& engine, const Program& program, const Dataset& data,
                          std::span<const double> parameters, const TaskOutput& out) {
  return guarded([&]() -> Result<Failures> {
    const Result<Task> task = predictionTask(engine, program, data, parameters, out);
    if (!task) return task.error();
    Result<Losses> done = runTask(engine, *task);
    if (!done) return std::move(done).error();
    return std::move(done->failures);
  });
}

Result<Pending<Failures>> submitEvaluate(const std::shared_ptr<Engine::State>& engine, const Program& program,
                                         const Dataset& data, std::span<const double> parameters,
                                         const TaskOutput& out) {
  return guarded([&]() -> Result<Pending<Failures>> {
    Result<Task> task = predictionTask(*engine, program, data, parameters, out);
    if (!task) return std::move(task).error();
    return submitTask<Failures>(engine, std::move(*task));
  });
}

Status checkNames(const ColumnNames& names, std::size_t columns) {
  if (names.empty() || names.size() == columns) return okStatus();
  return Error{Errc::kInvalid,
               fmt::format("{} name{} for {} column{}: expected none, or one for each", names.size(),
                           names.size() == 1 ? "" : "s", columns, columns == 1 ? "" : "s"),
               {}};
}

Result<Dataset> datasetOf(Result<std::shared_ptr<const Dataset::State>> state) {
  if (!state) return std::move(state).error();
  return Dataset(std::move(*state));
}

}  // namespace

Engine::Engine(std::shared_ptr<State> state) : state_(std::move(state)) {}

EngineParts EngineParts::ofMachine() {
  const char* const listings = std::getenv("SRJIT_LISTINGS");
  return {.driver = [] { return loadDriver(); }, .images = llvmImageMaker(listings == nullptr ? "" : listings)};
}

Result<Engine> Engine::create(const EngineOptions& options) { return createEngine(options, EngineParts::ofMachine()); }

Result<Engine> createEngine(const EngineOptions& options, const EngineParts& parts) {
  return guarded([&]() -> Result<Engine> {
    if (Status valid = checkLimits(options.limits); !valid) return std::move(valid).error();
    if (options.threads > kMaxThreads) {
      return Error{Errc::kInvalid, fmt::format("{} threads, expected at most {}", options.threads, kMaxThreads), {}};
    }
    auto state = std::make_shared<Engine::State>();
    state->options = options;
    // oneTBB prints a warning when an arena wants more threads than there are.
    const auto available = static_cast<unsigned>(tbb::this_task_arena::max_concurrency());
    state->options.threads = options.threads != 0 ? std::min(options.threads, available) : available;
    if (const Status traced = traceByEnvironment(); !traced) state->notices.push_back(traced.error().message);
    auto executor = makeExecutor(state->options, parts.driver, parts.images, state->notices);
    if (!executor) return std::move(executor).error();
    state->executor = std::move(*executor);
    state->population_parts = parts.population_parts;
    return Engine(std::move(state));
  });
}

Result<Engine> Engine::withLimits(const Limits& limits) const {
  return guarded([&]() -> Result<Engine> {
    if (Status valid = checkLimits(limits); !valid) return std::move(valid).error();
    return Engine(std::make_shared<State>(*state_, limits));
  });
}

const EngineOptions& Engine::options() const noexcept { return state_->options; }
std::vector<std::string> Engine::notices() const {
  std::vector<std::string> all = state_->notices;
  if (state_->home.isForked()) return all;
  for (std::string& notice : state_->executor->notices()) all.push_back(std::move(notice));
  return all;
}
CacheStats Engine::cacheStats() const {
  return state_->home.isForked() ? CacheStats() : state_->executor->cacheStats();
}

Result<Dataset> Engine::upload(const DataView& data) const {
  return state_->guardedCall([&]() -> Result<Dataset> {
    if (Status named = checkNames(data.names, data.columns.size()); !named) return std::move(named).error();
    return datasetOf(state_->executor->upload(data));
  });
}

Result<Dataset> Engine::adopt(const DeviceDataView& data) const {
  return state_->guardedCall([&]() -> Result<Dataset> {
    if (Status named = checkNames(data.names, data.columns.columns); !named) return std::move(named).error();
    return datasetOf(state_->executor->adopt(data));
  });
}

// Source and failures are outside of `guarded`: without these a program could not tell which expressions failed.
Program compileWith(Engine::State& engine, const CompileOptions& options, const SetSource& set,
                    const CompileCall& call) {
  auto source = std::make_shared<ProgramSource>();
  source->precision = engine.options.precision;
  source->math = engine.options.math;
  source->pipeline = options.pipeline;
  Status own = engine.checkProcess();
  if (own) {
    engine.executor->execute([&] { set(*source, ProgramSource::Threads::kArena); });
  } else {
    set(*source, ProgramSource::Threads::kOne);
  }
  source->group_by_sharing = options.group_by_sharing;
  if (call.derivation) *source = source->derive(*call.derivation);
  auto state = std::make_shared<Program::State>();
  state->info.nodes_before = source->tokens;
  state->info.tier = options.tier.value_or(engine.options.tier);
  // Kept with data are values of expressions.
  if (own && call.permitted && options.data != nullptr && !call.derivation) {
    state->data_serial = options.data->state().serial;
  }
  state->source = source;
  state->device = engine.options.device;
  if (options.deferred && options.data == nullptr && !call.derivation) {
    state->deferred =
        CompileOptions{.expected_evaluations = options.expected_evaluations, .expected_rows = options.expected_rows};
  }
  const Status made = guarded([&]() -> Status {
    if (!own) return own;
    if (!call.permitted) return call.permitted;
    if (state->deferred) return okStatus();
    engine.executor->compile(*state, options, call.deadline);
    return okStatus();
  });
  state->made = made.ok();
  if (!made) {
    state->failures.clear();
    for (std::size_t i = 0; i < source->expressions.size(); ++i) state->failures.push_back({i, made.error()});
  }
  state->failures = mergeFailures(source->invalid, std::move(state->failures));
  return Program(std::move(state));
}

Program Engine::compile(std::span<const Expression> expressions, const CompileOptions& options) const {
  std::size_t nodes = 0;
  for (const Expression& expression : expressions) nodes += expression.size();
  const CompileCall call{.deadline = state_->deadline(), .permitted = state_->checkCallNodes(nodes)};
  const auto set = [&](ProgramSource& source, ProgramSource::Threads threads) {
    if (!call.permitted) return source.setNone(expressions.size());
    source.set(expressions, threads, state_->options.limits.max_nodes);
  };
  return compileWith(*state_, options, set, call);
}

Result<Program> Engine::compile(const PopulationView& population, const CompileOptions& options) const {
  const Deadline deadline = state_->deadline();
  if (Status valid = checkArrays(population); !valid) return std::move(valid).error();
  if (Status few = state_->checkCallNodes(population.codes.size()); !few) return std::move(few).error();
  const auto set = [&](ProgramSource& source, ProgramSource::Threads threads) {
    source.set(population, threads, state_->options.limits.max_nodes);
  };
  Program made = compileWith(*state_, options, set, {.deadline = deadline});
  if (!made.state().made && deadline.isOver()) return tooManySeconds(state_->options.limits.max_seconds);
  return made;
}

Result<Failures> Engine::evaluate(const Program& program, const Dataset& data, std::span<const double> parameters,
                                  std::span<float> out) const {
  return srjit::evaluate(*state_, program, data, parameters, TaskOutput(out));
}

Result<Failures> Engine::evaluate(const Program& program, const Dataset& data, std::span<const double> parameters,
                                  std::span<double> out) const {
  return srjit::evaluate(*state_, program, data, parameters, TaskOutput(out));
}

Result<Failures> Engine::evaluate(const Program& program, const Dataset& data, std::span<const double> parameters,
                                  const DeviceMatrix& out, std::uint64_t stream) const {
  return srjit::evaluate(*state_, program, data, parameters, TaskOutput(out, stream));
}

Status Engine::prepare(const Program& program, const Dataset& data, const std::optional<LossOptions>& loss) const {
  return guarded([&]() -> Status {
    const std::vector<double> parameters(program.parameterOffset(program.size()));
    const Deadline deadline = state_->deadline();
    Result<Task> task =
        loss ? lossTask(*state_, program, data, parameters, *loss, deadline)
             : Task{.program = program, .data = data, .parameters = parameters, .loss = {}, .deadline = deadline};
    if (!task) return std::move(task).error();
    if (Status own = state_->checkProcess(); !own) return own;
    if (Status valid = checkTask(*task, state_->options); !valid) return valid;
    if (task->program.state().deferred) *task = withCode(*state_, *task);
    return isFeasible(*task) ? state_->executor->prepare(*task) : okStatus();
  });
}

Result<Pending<Failures>> Engine::submitEvaluate(const Program& program, const Dataset& data,
                                                 std::span<const double> parameters, std::span<float> out) const {
  return srjit::submitEvaluate(state_, program, data, parameters, TaskOutput(out));
}

Result<Pending<Failures>> Engine::submitEvaluate(const Program& program, const Dataset& data,
                                                 std::span<const double> parameters, std::span<double> out) const {
  return srjit::submitEvaluate(state_, program, data, parameters, TaskOutput(out));
}

}  // namespace srjit
