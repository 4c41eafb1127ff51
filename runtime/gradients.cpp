// Engine::gradient() and jacobian(): evaluations of what is derived of a program.
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include "runtime/engine.h"
#include "runtime/engine_tasks.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

std::size_t derivativeOffset(const Program& program, const Derivation& derivation, std::size_t expression) {
  return derivation.by == DerivativesBy::kVariables ? expression * derivation.columns
                                                    : program.parameterOffset(expression);
}

}  // namespace

Derivation derivedSums(Quantity quantity, const Dataset::State& data, NanPolicy nan) {
  return {.quantity = quantity,
          .columns = static_cast<std::uint32_t>(data.columns),
          .weighted = data.has_weights,
          .skips_invalid = nan != NanPolicy::kPropagate};
}

LossSums readSums(std::span<const double> outputs, const Derivation& derivation, const Dataset::State& data) {
  LossSums sums{.terms = outputs[0], .weights = data.weight_sum, .rows = data.rows, .valid = data.rows};
  if (!derivation.skips_invalid) return sums;
  // The count is NaN for an expression that failed.
  const std::span<const double> counts = outputs.last(derivation.counts());
  sums.valid = counts[0] > 0 ? static_cast<std::uint64_t>(counts[0]) : 0;
  if (sums.valid < sums.rows) sums.weights = counts.back();
  return sums;
}

Program deriveProgram(Engine::State& engine, const ProgramSource& source, const Program::State& program,
                      const Derivation& derivation, const CompileOptions& options) {
  auto state = std::make_shared<Program::State>();
  state->source = std::make_shared<const ProgramSource>(source.derive(derivation));
  state->device = program.device;
  state->info.tier = program.info.tier;
  state->made = program.made;
  if (program.made) {
    engine.executor->compile(*state, options);
    state->failures = mergeFailures(state->source->invalid, std::move(state->failures));
  } else {
    state->failures = program.failures;
  }
  return Program(std::move(state));
}

namespace {

/// A task for what is derived of a program.
Result<Task> derivedTask(Engine::State& engine, Task task, const Derivation& derivation) {
  if (Status own = engine.checkProcess(); !own) return std::move(own).error();
  if (Status valid = checkTask(task, engine.options); !valid) return std::move(valid).error();
  const Program::State& program = task.program.state();
  if (derivation.quantity != Quantity::kJacobian) {
    Result<Dataset> data = engine.executor->withTargetBehind(task.data);
    if (!data) return std::move(data).error();
    task.data = std::move(*data);
  }
  task.program =
      program.derived.get(derivation, [&] { return deriveProgram(engine, *program.source, program, derivation, {}); });
  return task;
}

/// With the failures of expressions whose variables the data lack: their outputs are NaN.
std::vector<Failure> withMissingColumns(const Task& task, std::vector<Failure> failures) {
  const ProgramSource& source = *task.program.state().source;
  return mergeFailures(failuresForWantOfColumns(source, task.data.state()), std::move(failures));
}

Gradients gradientsOf(Engine::State& engine, const Task& task, const LossOptions& options, Losses sums) {
  const Program& program = task.program;
  const ProgramSource& source = *program.state().source;
  const Derivation& derivation = *source.derivation;
  const Dataset::State& data = task.data.state();
  Gradients gradients;
  gradients.losses.values.resize(program.size());
  gradients.losses.valid_rows.resize(program.size());
  gradients.derivatives.resize(derivativeOffset(program, derivation, program.size()));
  const auto take = [&](std::size_t e) {
    const std::size_t first = derivativeOffset(program, derivation, e);
    const std::size_t count = derivativeOffset(program, derivation, e + 1) - first;
    const std::size_t output = source.outputOffset(e);
    const auto outputs = std::span<const double>(sums.values).subspan(output, source.outputOffset(e + 1) - output);
    const LossSums of = readSums(outputs, derivation, data);
    takeLoss(gradients.losses, e, of, data, options);
    const double slope = lossSlope(of, data.target_variance, options);
    const bool is_finite = std::isfinite(gradients.losses.values[e]);
    for (std::size_t i = 0; i < count; ++i) {
      gradients.derivatives[first + i] = is_finite ? slope * outputs[1 + i] : kNoNumber;
    }
  };
  engine.executor->execute([&] {
    constexpr std::size_t kGrain = 1 << 11;  // expressions
    tbb::parallel_for(tbb::blocked_range<std::size_t>(0, program.size(), kGrain), [&](const auto& range) {
      for (std::size_t e = range.begin(); e < range.end(); ++e) take(e);
    });
  });
  sums.failures = withMissingColumns(task, std::move(sums.failures));
  for (const Failure& failure : sums.failures) {
    gradients.losses.values[failure.expression] = kNoNumber;
    gradients.losses.valid_rows[failure.expression] = 0;
  }
  gradients.losses.failures = std::move(sums.failures);
  return gradients;
}

Result<Task> gradientTask(Engine::State& engine, const Program& program, const Dataset& data,
                          std::span<const double> parameters, const GradientOptions& options) {
  Derivation derivation = derivedSums(Quantity::kGradient, data.state(), options.loss.nan);
  derivation.by = options.by;
  derivation.term = infoOf(options.loss.kind).term;
  return derivedTask(engine, {program, data, parameters, nullptr, kPlainSums}, derivation);
}

template <class T>
Result<Task> jacobianTask(Engine::State& engine, const Program& program, const Dataset& data,
                          std::span<const double> parameters, std::span<T> out, DerivativesBy by) {
  if (kPrecisionOf<T> != engine.options.precision) return outputMismatch(kPrecisionOf<T>, engine.options.precision);
  const Derivation derivation{
      .quantity = Quantity::kJacobian, .by = by, .columns = static_cast<std::uint32_t>(data.columns())};
  const std::size_t derivatives = derivativeOffset(program, derivation, program.size());
  if (out.size() != derivatives * data.rows()) {
    return Error{Errc::kInvalid,
                 fmt::format("output of {} numbers, expected {} derivatives for each of {} rows", out.size(),
                             derivatives, data.rows()),
                 {}};
  }
  return derivedTask(engine, {program, data, parameters, reinterpret_cast<std::byte*>(out.data()), std::nullopt},
                     derivation);
}

/// Predictions in flight.
class PendingJacobian final : public Pending<std::vector<Failure>>::State {
 public:
  PendingJacobian(Task task, Pending<std::vector<Failure>> pending)
      : task_(std::move(task)), pending_(std::move(pending)) {
    task_.parameters = {};
  }
  bool ready() override { return pending_.ready(); }
  void wait() override { pending_.wait(); }
  Result<std::vector<Failure>> result() override {
    return guarded([&]() -> Result<std::vector<Failure>> {
      Result<std::vector<Failure>> failures = std::move(pending_).result();
      if (!failures) return failures;
      return withMissingColumns(task_, std::move(*failures));
    });
  }

 private:
  Task task_;
  Pending<std::vector<Failure>> pending_;
};

template <class T>
Result<std::vector<Failure>> jacobianOf(Engine::State& engine, const Program& program, const Dataset& data,
                                        std::span<const double> parameters, std::span<T> out, DerivativesBy by) {
  return guarded([&]() -> Result<std::vector<Failure>> {
    const Result<Task> task = jacobianTask(engine, program, data, parameters, out, by);
    if (!task) return task.error();
    Result<Losses> done = runTask(engine, *task);
    if (!done) return std::move(done).error();
    return withMissingColumns(*task, std::move(done->failures));
  });
}

template <class T>
Result<Pending<std::vector<Failure>>> submitJacobianOf(const std::shared_ptr<Engine::State>& engine,
                                                       const Program& program, const Dataset& data,
                                                       std::span<const double> parameters, std::span<T> out,
                                                       DerivativesBy by) {
  return guarded([&]() -> Result<Pending<std::vector<Failure>>> {
    Result<Task> task = jacobianTask(*engine, program, data, parameters, out, by);
    if (!task) return task.error();
    Result<Pending<std::vector<Failure>>> pending = submitTask<std::vector<Failure>>(engine, *task);
    if (!pending) return std::move(pending).error();
    return Pending<std::vector<Failure>>(std::make_unique<PendingJacobian>(std::move(*task), std::move(*pending)));
  });
}

/// Sums in flight.
class PendingGradients final : public Pending<Gradients>::State {
 public:
  PendingGradients(std::shared_ptr<Engine::State> engine, Task task, const LossOptions& options, Pending<Losses> sums)
      : engine_(std::move(engine)), task_(std::move(task)), options_(options), sums_(std::move(sums)) {
    task_.parameters = {};
  }
  bool ready() override { return sums_.ready(); }
  void wait() override { sums_.wait(); }
  Result<Gradients> result() override {
    return guarded([&]() -> Result<Gradients> {
      Result<Losses> sums = std::move(sums_).result();
      if (!sums) return std::move(sums).error();
      return gradientsOf(*engine_, task_, options_, std::move(*sums));
    });
  }

 private:
  std::shared_ptr<Engine::State> engine_;  // outlives the rest
  Task task_;
  LossOptions options_;
  Pending<Losses> sums_;
};

}  // namespace

Result<Gradients> Engine::gradient(const Program& program, const Dataset& data, std::span<const double> parameters,
                                   const GradientOptions& options) const {
  return guarded([&]() -> Result<Gradients> {
    const Result<Task> task = gradientTask(*state_, program, data, parameters, options);
    if (!task) return task.error();
    Result<Losses> sums = runTask(*state_, *task);
    if (!sums) return std::move(sums).error();
    return gradientsOf(*state_, *task, options.loss, std::move(*sums));
  });
}

Result<Pending<Gradients>> Engine::submitGradient(const Program& program, const Dataset& data,
                                                  std::span<const double> parameters,
                                                  const GradientOptions& options) const {
  return guarded([&]() -> Result<Pending<Gradients>> {
    Result<Task> task = gradientTask(*state_, program, data, parameters, options);
    if (!task) return std::move(task).error();
    Result<Pending<Losses>> sums = submitTask<Losses>(state_, *task);
    if (!sums) return std::move(sums).error();
    return Pending<Gradients>(
        std::make_unique<PendingGradients>(state_, std::move(*task), options.loss, std::move(*sums)));
  });
}

Result<std::vector<Failure>> Engine::jacobian(const Program& program, const Dataset& data,
                                              std::span<const double> parameters, std::span<float> out,
                                              DerivativesBy by) const {
  return jacobianOf(*state_, program, data, parameters, out, by);
}

Result<std::vector<Failure>> Engine::jacobian(const Program& program, const Dataset& data,
                                              std::span<const double> parameters, std::span<double> out,
                                              DerivativesBy by) const {
  return jacobianOf(*state_, program, data, parameters, out, by);
}

Result<Pending<std::vector<Failure>>> Engine::submitJacobian(const Program& program, const Dataset& data,
                                                             std::span<const double> parameters, std::span<float> out,
                                                             DerivativesBy by) const {
  return submitJacobianOf(state_, program, data, parameters, out, by);
}

Result<Pending<std::vector<Failure>>> Engine::submitJacobian(const Program& program, const Dataset& data,
                                                             std::span<const double> parameters, std::span<double> out,
                                                             DerivativesBy by) const {
  return submitJacobianOf(state_, program, data, parameters, out, by);
}

}  // namespace srjit
