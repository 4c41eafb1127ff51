// Engine::gradient() and jacobian(): evaluations of what is derived of a program.
#include <utility>

#include <fmt/format.h>

#include "runtime/engine.h"
#include "runtime/engine_tasks.h"
#include "runtime/evaluation/loss_terms.h"
#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

Result<Task> gradientTask(Engine::State& engine, const Program& program, const Dataset& data,
                          std::span<const double> parameters, const GradientOptions& options,
                          const Deadline& deadline) {
  if (Status valid = checkLoss(options.loss, data.state(), engine.options.limits); !valid)
    return std::move(valid).error();
  Result<Program> of_vectors = programOfVectors(engine, program, data, parameters, deadline);
  if (!of_vectors) return std::move(of_vectors).error();
  Derivation derivation = derivedSums(Quantity::kGradient, data.state(), options.loss);
  derivation.by = options.by;
  Task task{.program = std::move(*of_vectors),
            .data = data,
            .parameters = parameters,
            .loss = kPlainSums,
            .deadline = deadline};
  return derivedTask(engine, std::move(task), derivation);
}

Result<Task> jacobianTask(Engine::State& engine, const Program& program, const Dataset& data,
                          std::span<const double> parameters, const TaskOutput& out, DerivativesBy by) {
  const Deadline deadline = engine.deadline();
  const Derivation derivation{
      .quantity = Quantity::kJacobian, .by = by, .columns = static_cast<std::uint32_t>(data.columns())};
  Result<Program> of_vectors = programOfVectors(engine, program, data, parameters, deadline);
  if (!of_vectors) return std::move(of_vectors).error();
  const std::size_t derivatives = by == DerivativesBy::kVariables ? of_vectors->size() * data.columns()
                                                                  : of_vectors->parameterOffset(of_vectors->size());
  Result<Task> task = taskWithOutput(engine, std::move(*of_vectors), data, parameters, out, deadline);
  if (!task) return task;
  if (out.size != derivatives * data.rows()) {
    return Error{Errc::kInvalid,
                 fmt::format("output of {} numbers, expected {} derivatives for each of {} rows", out.size, derivatives,
                             data.rows()),
                 {}};
  }
  return derivedTask(engine, std::move(*task), derivation);
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

Result<std::vector<Failure>> jacobianOf(Engine::State& engine, const Program& program, const Dataset& data,
                                        std::span<const double> parameters, const TaskOutput& out, DerivativesBy by) {
  return guarded([&]() -> Result<std::vector<Failure>> {
    const Result<Task> task = jacobianTask(engine, program, data, parameters, out, by);
    if (!task) return task.error();
    Result<Losses> done = runTask(engine, *task);
    if (!done) return std::move(done).error();
    return withMissingColumns(*task, std::move(done->failures));
  });
}

Result<Pending<std::vector<Failure>>> submitJacobianOf(const std::shared_ptr<Engine::State>& engine,
                                                       const Program& program, const Dataset& data,
                                                       std::span<const double> parameters, const TaskOutput& out,
                                                       DerivativesBy by) {
  return guarded([&]() -> Result<Pending<std::vector<Failure>>> {
    Result<Task> task = jacobianTask(*engine, program, data, parameters, out, by);
    if (!task) return task.error();
    Result<Pending<std::vector<Failure>>> pending = submitTask<std::vector<Failure>>(engine, *task);
    if (!pending) return std::move(pending).error();
    return Pending<std::vector<Failure>>(std::make_unique<PendingJacobian>(std::move(*task), std::move(*pending)));
  });
}

}  // namespace

Result<Gradients> Engine::gradient(const Program& program, const Dataset& data, std::span<const double> parameters,
                                   const GradientOptions& options) const {
  return guarded([&]() -> Result<Gradients> {
    const Result<Task> task = gradientTask(*state_, program, data, parameters, options, state_->deadline());
    if (!task) return task.error();
    Result<Sums> sums = runSums(*state_, *task);
    if (!sums) return std::move(sums).error();
    return readGradients(*state_, *task, options.loss, std::move(*sums));
  });
}

Result<Pending<Gradients>> Engine::submitGradient(const Program& program, const Dataset& data,
                                                  std::span<const double> parameters,
                                                  const GradientOptions& options) const {
  return guarded([&]() -> Result<Pending<Gradients>> {
    Result<Task> task = gradientTask(*state_, program, data, parameters, options, state_->deadline());
    if (!task) return std::move(task).error();
    return submitSums<Gradients>(state_, std::move(*task), options.loss);
  });
}

Result<std::vector<Failure>> Engine::jacobian(const Program& program, const Dataset& data,
                                              std::span<const double> parameters, std::span<float> out,
                                              DerivativesBy by) const {
  return jacobianOf(*state_, program, data, parameters, TaskOutput(out), by);
}

Result<std::vector<Failure>> Engine::jacobian(const Program& program, const Dataset& data,
                                              std::span<const double> parameters, std::span<double> out,
                                              DerivativesBy by) const {
  return jacobianOf(*state_, program, data, parameters, TaskOutput(out), by);
}

Result<std::vector<Failure>> Engine::jacobian(const Program& program, const Dataset& data,
                                              std::span<const double> parameters, const DeviceMatrix& out,
                                              std::uint64_t stream, DerivativesBy by) const {
  return jacobianOf(*state_, program, data, parameters, TaskOutput(out, stream), by);
}

Result<Pending<std::vector<Failure>>> Engine::submitJacobian(const Program& program, const Dataset& data,
                                                             std::span<const double> parameters, std::span<float> out,
                                                             DerivativesBy by) const {
  return submitJacobianOf(state_, program, data, parameters, TaskOutput(out), by);
}

Result<Pending<std::vector<Failure>>> Engine::submitJacobian(const Program& program, const Dataset& data,
                                                             std::span<const double> parameters, std::span<double> out,
                                                             DerivativesBy by) const {
  return submitJacobianOf(state_, program, data, parameters, TaskOutput(out), by);
}

}  // namespace srjit
