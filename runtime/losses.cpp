// Engine::loss() and submitLoss(), of programs and of populations that are evaluated once.
#include <optional>
#include <utility>

#include "runtime/engine_tasks.h"
#include "runtime/evaluation/loss_terms.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/evaluation/population_parts.h"
#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

/// A lossTask() in flight.
Result<Pending<Losses>> submitLossTask(const std::shared_ptr<Engine::State>& engine, Task task,
                                       const LossOptions& options) {
  return isOfGraphs(options, task.data.state()) ? submitSums<Losses>(engine, std::move(task), options)
                                                : submitTask<Losses>(engine, std::move(task));
}

}  // namespace

Result<Task> lossTask(Engine::State& engine, const Program& program, const Dataset& data,
                      std::span<const double> parameters, const LossOptions& options, const Deadline& deadline) {
  Result<Program> of_vectors = programOfVectors(engine, program, data, parameters, deadline);
  if (!of_vectors) return std::move(of_vectors).error();
  Task task{
      .program = std::move(*of_vectors), .data = data, .parameters = parameters, .loss = {}, .deadline = deadline};
  if (!isOfGraphs(options, data.state())) {
    task.loss = options;
    return task;
  }
  if (Status valid = checkLoss(options, data.state(), engine.options.limits); !valid) return std::move(valid).error();
  task.loss = kPlainSums;
  return derivedTask(engine, std::move(task), derivedSums(Quantity::kLoss, data.state(), options));
}

Result<Losses> runLoss(Engine::State& engine, const Program& program, const Dataset& data,
                       std::span<const double> parameters, const LossOptions& options, const Deadline& deadline) {
  const Result<Task> task = lossTask(engine, program, data, parameters, options, deadline);
  if (!task) return task.error();
  if (!isOfGraphs(options, data.state())) return runTask(engine, *task);
  Result<Sums> sums = runSums(engine, *task);
  if (!sums) return std::move(sums).error();
  Result<Gradients> read = readGradients(engine, *task, options, std::move(*sums));
  if (!read) return std::move(read).error();
  return std::move(read->losses);
}

Result<Losses> Engine::loss(const Program& program, const Dataset& data, std::span<const double> parameters,
                            const LossOptions& options) const {
  return guarded([&] { return runLoss(*state_, program, data, parameters, options, state_->deadline()); });
}

Result<Pending<Losses>> Engine::submitLoss(const Program& program, const Dataset& data,
                                           std::span<const double> parameters, const LossOptions& options) const {
  return guarded([&]() -> Result<Pending<Losses>> {
    Result<Task> task = lossTask(*state_, program, data, parameters, options, state_->deadline());
    if (!task) return std::move(task).error();
    return submitLossTask(state_, std::move(*task), options);
  });
}

// What a loss of graphs derives is made of the tokens: no code of the expressions' values is needed.
Result<Pending<Losses>> Engine::submitLoss(const PopulationView& population, const Dataset& data,
                                           std::span<const double> parameters, const LossOptions& loss,
                                           const CompileOptions& options) const {
  return state_->guardedCall([&]() -> Result<Pending<Losses>> {
    const Deadline deadline = state_->deadline();
    if (Status valid = checkArrays(population); !valid) return std::move(valid).error();
    if (Status few = state_->checkCallNodes(population.codes.size()); !few) return std::move(few).error();
    if (Status valid = checkOrigin(data.state(), state_->options); !valid) return std::move(valid).error();
    if (Status valid = checkLoss(loss, data.state(), state_->options.limits); !valid) return std::move(valid).error();
    std::optional<Derivation> derivation;
    std::optional<Dataset> read = data;
    if (isOfGraphs(loss, data.state())) {
      Result<Dataset> behind = state_->executor->withTargetBehind(data);
      if (!behind) return std::move(behind).error();
      read = std::move(*behind);
      derivation = derivedSums(Quantity::kLoss, data.state(), loss);
    }
    CompileOptions for_data = options;
    for_data.tier = options.tier.value_or(state_->options.tier);
    for_data.expected_rows = data.rows();
    for_data.data = &data;
    const std::size_t count =
        state_->population_parts != 0 ? state_->population_parts : state_->executor->bestParts(population, for_data);
    const auto prepare = [&](const PopulationView& part, bool is_first) {
      const auto set = [&](ProgramSource& source, ProgramSource::Threads threads) {
        source.is_continued = !is_first;
        source.set(part, threads, state_->options.limits.max_nodes);
      };
      Program made = compileWith(*state_, for_data, set, {.deadline = deadline, .derivation = derivation});
      deadline.check();
      return made;
    };
    const auto submit = [&](const Program& program, std::span<const double> own) {
      return submitLossTask(state_,
                            {.program = program,
                             .data = *read,
                             .parameters = own,
                             .loss = derivation ? kPlainSums : loss,
                             .deadline = deadline},
                            loss);
    };
    std::optional<Result<Pending<Losses>>> pending;
    state_->executor->execute(
        [&] { pending = submitParts(divide(population, count), parameters, {.prepare = prepare, .submit = submit}); });
    return std::move(*pending);
  });
}

Result<Losses> Engine::loss(const PopulationView& population, const Dataset& data, std::span<const double> parameters,
                            const LossOptions& loss, const CompileOptions& options) const {
  Result<Pending<Losses>> pending = submitLoss(population, data, parameters, loss, options);
  if (!pending) return std::move(pending).error();
  return std::move(*pending).result();
}

}  // namespace srjit
