// Evaluations of what is derived of a program: losses of graphs, gradients and Jacobians.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include "runtime/engine_tasks.h"
#include "runtime/evaluation/loss_terms.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
std::size_t derivativeOffset(const Program& program, const Derivation& derivation, std::size_t expression) {
  if (derivation.quantity == Quantity::kLoss) return 0;
  return derivation.by == DerivativesBy::kVariables ? expression * derivation.columns
                                                    : program.parameterOffset(expression);
}

}  // namespace

Derivation derivedSums(Quantity quantity, const Dataset::State& data, const LossOptions& options) {
  return {.quantity = quantity,
          .columns = static_cast<std::uint32_t>(data.columns),
          .loss = derivedLoss(options, data),
          .weighted = data.has_weights,
          .skips_invalid = options.nan != NanPolicy::kPropagate};
}

LossSums readSums(std::span<const double> outputs, const Derivation& derivation, const Dataset::State& data) {
  LossSums sums{.terms = outputs[0], .weights = data.weight_sum, .rows = data.rows, .valid = data.rows};
  if (derivation.isOfScaledLoss()) {
    std::copy_n(outputs.begin() + 1, sums.more_terms.size(), sums.more_terms.begin());
    const double offset = data.target_mean - derivation.loss.constants.target_centre;
    sums.targets = data.weight_sum * offset;
    sums.squared_targets = data.weight_sum * (data.target_variance + offset * offset);
    sums.last_place = lastPlace(data.precision);
  }
  if (!derivation.skips_invalid) return sums;
  const std::span<const double> counts = outputs.last(derivation.counts());
  sums.valid = countedRows(counts[0], data.rows);
  if (sums.valid == sums.rows) return sums;
  sums.weights = counts.back();
  if (derivation.targetTerms() > 0) {
    const std::span<const double> targets = outputs.last(derivation.counts() + derivation.targetTerms());
    sums.targets = targets[0];
    sums.squared_targets = targets[1];
  }
  return sums;
}

std::shared_ptr<Program::State> programLike(const Program::State& program,
                                            std::shared_ptr<const ProgramSource> source) {
  auto state = std::make_shared<Program::State>();
  state->source = std::move(source);
  state->device = program.device;
  state->info.tier = program.info.tier;
  state->made = program.made;
  return state;
}

void makeCode(Engine::State& engine, Program::State& program, const CompileOptions& options, const Deadline& deadline) {
  engine.executor->compile(program, options, deadline);
  program.failures = mergeFailures(program.source->invalid, std::move(program.failures));
}

Program deriveProgram(Engine::State& engine, const ProgramSource& source, const Program::State& program,
                      const Derivation& derivation, const CompileOptions& options, const Deadline& deadline) {
  const auto state = programLike(program, std::make_shared<const ProgramSource>(source.derive(derivation)));
  if (state->made) {
    makeCode(engine, *state, options, deadline);
  } else {
    state->failures = program.failures;
  }
  return Program(state);
}

Result<Task> derivedTask(Engine::State& engine, Task task, const Derivation& derivation) {
  if (Status own = engine.checkProcess(); !own) return std::move(own).error();
  if (Status valid = checkTask(task, engine.options); !valid) return std::move(valid).error();
  const Program::State& program = task.program.state();
  if (derivation.readsTarget()) {
    Result<Dataset> data = engine.executor->withTargetBehind(task.data);
    if (!data) return std::move(data).error();
    task.data = std::move(*data);
  }
  // Before what is kept is looked up, so that refusals do not depend on earlier calls.
  const std::size_t outputs = engine.options.limits.max_call_nodes == 0 ? 0 : program.source->outputsOf(derivation);
  if (Status few = engine.checkCallNodes(outputs); !few) return std::move(few).error();
  task.program = program.derived.get(derivation, task.deadline, [&] {
    return deriveProgram(engine, *program.source, program, derivation, {}, task.deadline);
  });
  return task;
}

std::vector<Failure> withMissingColumns(const Task& task, std::vector<Failure> failures) {
  const ProgramSource& source = *task.program.state().source;
  return mergeFailures(failuresForWantOfColumns(source, task.data.state()), std::move(failures));
}

Gradients readGradients(Engine::State& engine, const Task& task, const LossOptions& options, Sums sums) {
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
    const std::span<const double> outputs = sums.values.subspan(output, source.outputOffset(e + 1) - output);
    const LossSums of = readSums(outputs, derivation, data);
    takeLoss(gradients.losses, e, of, data, options);
    if (count == 0) return;
    const auto slopes = lossSlopes(of, data.target_variance, options);
    const bool is_finite = std::isfinite(gradients.losses.values[e]);
    const std::size_t terms = derivation.loss.terms();
    for (std::size_t i = 0; i < count; ++i) {
      const std::span<const double> sums_of = outputs.subspan(terms * (1 + i), terms);
      double derivative = slopes[0] * sums_of[0];
      for (std::size_t k = 1; k < terms; ++k) derivative += slopes[k] * sums_of[k];
      gradients.derivatives[first + i] = is_finite ? derivative : kNoNumber;
    }
  };
  engine.executor->execute([&] {
    constexpr std::size_t kGrain = 1 << 11;  // expressions
    tbb::parallel_for(tbb::blocked_range<std::size_t>(0, program.size(), kGrain), [&](const auto& range) {
      for (std::size_t e = range.begin(); e < range.end(); ++e) take(e);
    });
  });
  sums.failures = withMissingColumns(task, std::move(sums.failures));
  for (const auto& [e, error] : sums.failures) {
    gradients.losses.values[e] = kNoNumber;
    gradients.losses.valid_rows[e] = 0;
    std::fill(gradients.derivatives.data() + derivativeOffset(program, derivation, e),
              gradients.derivatives.data() + derivativeOffset(program, derivation, e + 1), kNoNumber);
  }
  gradients.losses.failures = std::move(sums.failures);
  return gradients;
}

namespace {

/// Sums in flight.
template <class Value>
class PendingSums final : public Pending<Value>::State {
 public:
  PendingSums(std::shared_ptr<Engine::State> engine, Task task, LossOptions options, Pending<Losses> sums)
      : engine_(std::move(engine)), task_(std::move(task)), options_(std::move(options)), sums_(std::move(sums)) {
    task_.parameters = {};
  }
  bool ready() override { return sums_.ready(); }
  void wait() override { sums_.wait(); }
  Result<Value> result() override {
    return guarded([&]() -> Result<Value> {
      Result<Losses> sums = std::move(sums_).result();
      if (!sums) return std::move(sums).error();
      Gradients read = readGradients(*engine_, task_, options_, sumsOf(std::move(*sums)));
      if constexpr (std::is_same_v<Value, Losses>) {
        return std::move(read.losses);
      } else {
        return read;
      }
    });
  }

 private:
  std::shared_ptr<Engine::State> engine_;  // outlives the rest
  Task task_;
  LossOptions options_;
  Pending<Losses> sums_;
};

}  // namespace

template <class Value>
Result<Pending<Value>> submitSums(const std::shared_ptr<Engine::State>& engine, Task task, const LossOptions& options) {
  Result<Pending<Losses>> sums = submitTask<Losses>(engine, task);
  if (!sums) return std::move(sums).error();
  return Pending<Value>(std::make_unique<PendingSums<Value>>(engine, std::move(task), options, std::move(*sums)));
}

template Result<Pending<Losses>> submitSums(const std::shared_ptr<Engine::State>&, Task, const LossOptions&);
template Result<Pending<Gradients>> submitSums(const std::shared_ptr<Engine::State>&, Task, const LossOptions&);

}  // namespace srjit
