// The checks of evaluations, and the tasks of each kind.
#include <utility>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "runtime/engine/tasks.h"
#include "runtime/evaluation/loss_value.h"

namespace srjit {
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
