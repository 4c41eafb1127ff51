// Losses of populations that are evaluated once.
#include <optional>
#include <utility>

#include "runtime/engine_tasks.h"
#include "runtime/evaluation/population_parts.h"
#include "runtime/platform/guarded.h"

namespace srjit {

Result<Pending<Losses>> Engine::submitLoss(const PopulationView& population, const Dataset& data,
                                           std::span<const double> parameters, const LossOptions& loss,
                                           const CompileOptions& options) const {
  return guarded([&]() -> Result<Pending<Losses>> {
    if (Status own = state_->checkProcess(); !own) return std::move(own).error();
    if (Status valid = checkArrays(population); !valid) return std::move(valid).error();
    CompileOptions for_data = options;
    for_data.tier = options.tier.value_or(state_->options.tier);
    for_data.expected_rows = data.rows();
    for_data.data = &data;
    const std::size_t count =
        state_->population_parts != 0 ? state_->population_parts : state_->executor->bestParts(population, for_data);
    const PartSteps steps{.prepare =
                              [&](const PopulationView& part, bool is_first) {
                                return compileWith(*state_, for_data,
                                                   [&](ProgramSource& source, ProgramSource::Threads threads) {
                                                     source.is_continued = !is_first;
                                                     source.set(part, threads);
                                                   });
                              },
                          .submit = [&](const Program& program,
                                        std::span<const double> own) { return submitLoss(program, data, own, loss); }};
    std::optional<Result<Pending<Losses>>> pending;
    state_->executor->execute([&] { pending = submitParts(divide(population, count), parameters, steps); });
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
