// Programs, also those that are made of others; the checks of evaluations, and the tasks of each kind.
#include "runtime/engine/tasks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "runtime/evaluation/loss_value.h"

namespace srjit {

Failures mergeFailures(Failures failures, Failures more) {
  failures.insert(failures.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  std::ranges::stable_sort(failures, {}, &Failure::expression);
  const auto repeated = std::ranges::unique(failures, {}, &Failure::expression);
  failures.erase(repeated.begin(), repeated.end());
  return failures;
}

// Source and failures are outside of `guarded`: without these a program could not tell which expressions failed.
Program compileWith(Engine::State& engine, const CompileOptions& options, const SetSource& set,
                    const Deadline& deadline, const std::optional<Derivation>& derivation, const Status& permitted) {
  auto source = std::make_shared<ProgramSource>();
  source->precision = engine.options.precision;
  source->math = engine.options.math;
  source->pipeline = options.pipeline;
  source->simplify = options.simplify;
  const Status own = engine.checkProcess();
  if (own) {
    engine.executor->execute([&] { set(*source, true); });
  } else {
    set(*source, false);
  }
  source->group_by_sharing = options.group_by_sharing;
  if (derivation) *source = source->derive(*derivation);
  auto state = std::make_shared<Program::State>();
  state->info.nodes_before = source->tokens;
  state->info.tier = options.tier.value_or(engine.options.tier);
  // Kept subtrees are values of expressions.
  if (own && permitted && options.data != nullptr && !derivation) state->data_serial = options.data->state().serial;
  state->source = source;
  state->device = engine.options.device;
  if (options.deferred && options.data == nullptr && !derivation) {
    state->deferred =
        CompileOptions{.expected_evaluations = options.expected_evaluations, .expected_rows = options.expected_rows};
  }
  const Status made = guarded([&]() -> Status {
    if (!own) return own.error();
    if (!permitted) return permitted;
    if (!state->deferred) engine.executor->compile(*state, options, deadline);
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
  const Deadline deadline = state_->deadline();
  std::size_t nodes = 0;
  for (const Expression& expression : expressions) nodes += expression.size();
  const Status permitted = state_->checkCallNodes(nodes);
  const auto set = [&](ProgramSource& source, bool in_arena) {
    if (!permitted) return source.setNone(expressions.size());
    source.set(expressions, state_->options.limits.max_nodes, in_arena);
  };
  return compileWith(*state_, options, set, deadline, {}, permitted);
}

Result<Program> Engine::compile(const PopulationView& population, const CompileOptions& options) const {
  const Deadline deadline = state_->deadline();
  if (Status valid = checkArrays(population); !valid) return std::move(valid).error();
  if (Status few = state_->checkCallNodes(population.codes.size()); !few) return std::move(few).error();
  const auto set = [&](ProgramSource& source, bool in_arena) {
    source.set(population, state_->options.limits.max_nodes, in_arena);
  };
  Program made = compileWith(*state_, options, set, deadline);
  if (!made.state().made && deadline.isOver()) return tooManySeconds(state_->options.limits.max_seconds);
  return made;
}

namespace {

/// Failures of `given` expressions, for as many copies of these as `count` expressions are.
Failures repeatedFailures(std::span<const Failure> failures, std::size_t given, std::size_t count) {
  Failures all;
  for (std::size_t first = 0; first < count; first += given) {
    for (const Failure& failure : failures) all.push_back({first + failure.expression, failure.error});
  }
  return all;
}

}  // namespace

Program makeVariant(Engine::State& engine, const Program::State& program, ProgramSource source,
                    const CompileOptions& options, const Deadline& deadline) {
  auto state = std::make_shared<Program::State>();
  state->source = std::make_shared<const ProgramSource>(std::move(source));
  state->device = program.device;
  state->info.tier = options.tier.value_or(program.info.tier);
  state->made = program.made;
  if (program.made) {
    engine.executor->compile(*state, options, deadline);
    state->failures = mergeFailures(state->source->invalid, std::move(state->failures));
  } else {
    state->failures =
        repeatedFailures(program.failures, program.source->expressions.size(), state->source->expressions.size());
  }
  return Program(std::move(state));
}

Task withCode(Engine::State& engine, Task task) {
  const Program::State& program = task.program.state();
  if (!program.deferred) return task;
  Program with_code = program.variants.get({}, task.deadline, [&] {
    return makeVariant(engine, program, *program.source, *program.deferred, task.deadline);
  });
  task.program = std::move(with_code);
  return task;
}

Result<Task> withVectors(Engine::State& engine, Task task) {
  const Program::State& program = task.program.state();
  const ProgramSource& given = *program.source;
  const std::size_t count = given.expressions.size(), one = given.parameterOffset(count);
  if (one == 0 || task.parameters.size() <= one || task.parameters.size() % one != 0) return task;
  Task of_one = task;
  of_one.parameters = task.parameters.first(one);
  if (Status valid = checkTask(of_one, engine.options); !valid) return std::move(valid).error();
  const std::size_t times = task.parameters.size() / one;
  if (Status few = engine.checkCallNodes(given.tokens, times); !few) return std::move(few).error();
  Program repeated = program.variants.get(times, task.deadline, [&] {
    ProgramSource source = given.emptyLike();
    engine.executor->execute(
        [&] { source.setSelected(given, times * count, [count](std::size_t i) { return i % count; }); });
    source.invalid = repeatedFailures(given.invalid, count, times * count);
    return makeVariant(engine, program, std::move(source), {}, task.deadline);
  });
  task.program = std::move(repeated);
  return task;
}

Result<Task> derivedTask(Engine::State& engine, Task task, const Derivation& derivation) {
  if (Status valid = checkTask(task, engine.options); !valid) return std::move(valid).error();
  const Program::State& program = task.program.state();
  if (derivation.readsTarget()) {
    Result<Dataset> data = engine.executor->withTargetBehind(task.data);
    if (!data) return std::move(data).error();
    task.data = std::move(*data);
  }
  // Before the look-up, so that refusals do not depend on earlier calls.
  const std::size_t outputs = engine.options.limits.max_call_nodes == 0 ? 0 : program.source->outputsOf(derivation);
  if (Status few = engine.checkCallNodes(outputs); !few) return std::move(few).error();
  Program derived = program.variants.get(derivation, task.deadline, [&] {
    return makeVariant(engine, program, program.source->derive(derivation), {}, task.deadline);
  });
  task.program = std::move(derived);
  return task;
}

namespace {

template <class Value>
Error mismatch(const char* what, Value other, Value own) {
  return {Errc::kInvalid, fmt::format("{} in {}, but the engine computes in {}", what, nameOf(other), nameOf(own)), {}};
}

/// Has the task write there. Errors: those of the array but for its size (Engine::evaluate()).
Status setOutput(Engine::State& engine, Task& task, const TaskOutput& out) {
  if (out.type != engine.options.precision) return mismatch("output", out.type, engine.options.precision);
  task.out = out.host;
  if (!out.device || out.size == 0) return okStatus();
  const std::ptrdiff_t element = bytesOf(out.type);
  if (out.device->column_stride != element ||
      out.device->row_stride != element * static_cast<std::ptrdiff_t>(out.device->columns)) {
    return Error{Errc::kInvalid,
                 fmt::format("output with strides of {} and {} bytes, expected adjacent numbers",
                             out.device->row_stride, out.device->column_stride),
                 {}};
  }
  task.device_out = out.device->pointer;
  return engine.executor->claimOutput(*out.device, out.stream);
}

}  // namespace

Status checkOrigin(const Dataset::State& data, const EngineOptions& engine) {
  if (data.precision != engine.precision) return mismatch("data", data.precision, engine.precision);
  if (data.device == engine.device) return okStatus();
  return Error{
      Errc::kInvalid, fmt::format("data on {}, but the engine's device is {}", data.device, engine.device), {}};
}

Status checkParameterCount(std::size_t given, std::size_t expected) {
  if (given == expected) return okStatus();
  return Error{Errc::kInvalid, fmt::format("{} parameters, but the program has {}", given, expected), {}};
}

Status checkTask(const Task& task, const EngineOptions& engine) {
  const Program::State& program = task.program.state();
  const ProgramSource& made = *program.source;
  if (made.precision != engine.precision) return mismatch("a program", made.precision, engine.precision);
  if (made.math != engine.math) return mismatch("a program", made.math, engine.math);
  const Dataset::State& data = task.data.state();
  if (data.precision != engine.precision) return mismatch("data", data.precision, engine.precision);
  if (program.device != engine.device || data.device != engine.device) {
    return Error{Errc::kInvalid,
                 fmt::format("a program for {} and data on {}, but the engine's device is {}", program.device,
                             data.device, engine.device),
                 {}};
  }
  if (program.data_serial && *program.data_serial != data.serial) {
    return Error{Errc::kInvalid, "a program that was made for another data set (CompileOptions::data)", {}};
  }
  Status counted = checkParameterCount(task.parameters.size(), made.parameterOffset(made.expressions.size()));
  if (!counted) return counted;
  return task.loss ? checkLoss(*task.loss, data, engine.limits) : okStatus();
}

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

Result<Task> outputTask(Engine::State& engine, Task task, const TaskOutput& out, std::optional<DerivativesBy> by) {
  Result<Task> made = withVectors(engine, std::move(task));
  if (!made) return made;
  if (Status set = setOutput(engine, *made, out); !set) return std::move(set).error();
  const std::size_t columns = made->data.columns(), count = made->program.size(), rows = made->data.rows();
  const std::size_t derivatives =
      by == DerivativesBy::kVariables ? count * columns : made->program.parameterOffset(count);
  if (out.size != (by ? derivatives : count) * rows) {
    const std::string expected = by ? fmt::format("{} derivatives for each of {} rows", derivatives, rows)
                                    : fmt::format("{} expressions x {} rows", count, rows);
    return Error{Errc::kInvalid, fmt::format("output of {} numbers, expected {}", out.size, expected), {}};
  }
  if (!by) return made;
  return derivedTask(engine, std::move(*made),
                     {.quantity = Quantity::kJacobian, .by = *by, .columns = static_cast<std::uint32_t>(columns)});
}

namespace {

Result<Task> sumsTask(Engine::State& engine, Task task, Quantity quantity, const LossOptions& options,
                      DerivativesBy by) {
  task.loss = kPlainSums;
  Derivation derivation = derivedSums(quantity, task.data.state(), options);
  derivation.by = by;
  return derivedTask(engine, std::move(task), derivation);
}

}  // namespace

Result<Task> gradientTask(Engine::State& engine, Task task, const GradientOptions& options) {
  Status valid = checkLoss(options.loss, task.data.state(), engine.options.limits);
  if (!valid) return std::move(valid).error();
  Result<Task> made = withVectors(engine, std::move(task));
  if (!made) return made;
  return sumsTask(engine, std::move(*made), Quantity::kGradient, options.loss, options.by);
}

Result<Task> lossTask(Engine::State& engine, Task task, const LossOptions& options) {
  Result<Task> made = withVectors(engine, std::move(task));
  if (!made) return made;
  if (isOfGraphs(options, made->data.state())) {
    Status valid = checkLoss(options, made->data.state(), engine.options.limits);
    if (!valid) return std::move(valid).error();
    return sumsTask(engine, std::move(*made), Quantity::kLoss, options, DerivativesBy::kParameters);
  }
  made->loss = options;
  return made;
}

}  // namespace srjit
