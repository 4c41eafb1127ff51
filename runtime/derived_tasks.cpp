// Evaluations of what is derived of a program: losses of graphs, gradients and Jacobians.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include "runtime/conditioned_sums.h"
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
  const LossConstants& constants = derivation.loss.constants;
  LossSums sums{.terms = outputs[0],
                .weights = data.weight_sum * constants.weight_scale,
                .rows = data.rows,
                .valid = data.rows,
                .scale = constants.scale,
                .weight_scale = constants.weight_scale};
  if (derivation.isOfScaledLoss()) {
    std::copy_n(outputs.begin() + 1, sums.more_terms.size(), sums.more_terms.begin());
    const double offset = (data.target_mean - constants.target_centre) + data.target_mean_rest;
    sums.targets = sums.weights * offset;
    sums.squared_targets = sums.weights * (data.target_variance + offset * offset);
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

namespace {

/// Losses and gradients from sums.
class GradientReader {
 public:
  GradientReader(const Task& task, const LossOptions& options)
      : program_(task.program),
        data_(task.data.state()),
        options_(options),
        derivation_(*program_.state().source->derivation) {
    gradients_.losses.values.resize(program_.size());
    gradients_.losses.valid_rows.resize(program_.size());
    gradients_.derivatives.resize(first(program_.size()));
  }

  void take(std::size_t e, const LossSums& sums, std::span<const double> outputs) {
    takeLoss(gradients_.losses, e, sums, data_, options_);
    if (first(e) == first(e + 1)) return;
    const auto slopes = lossSlopes(sums, data_.target_variance, options_);
    const bool is_finite = std::isfinite(gradients_.losses.values[e]);
    const std::size_t terms = derivation_.loss.terms();
    for (std::size_t d = first(e), i = 1; d < first(e + 1); ++d, ++i) {
      const std::span<const double> sums_of = outputs.subspan(terms * i, terms);
      double derivative = slopes[0] * sums_of[0];
      for (std::size_t k = 1; k < terms; ++k) derivative += slopes[k] * sums_of[k];
      gradients_.derivatives[d] = is_finite ? derivative : kNoNumber;
    }
  }
  Gradients finish(std::vector<Failure> failures) && {
    for (const auto& [e, error] : failures) {
      gradients_.losses.values[e] = kNoNumber;
      gradients_.losses.valid_rows[e] = 0;
      std::fill(gradients_.derivatives.data() + first(e), gradients_.derivatives.data() + first(e + 1), kNoNumber);
    }
    gradients_.losses.failures = std::move(failures);
    return std::move(gradients_);
  }

 private:
  /// Of the derivatives of expression e.
  std::size_t first(std::size_t e) const { return derivativeOffset(program_, derivation_, e); }

  const Program& program_;
  const Dataset::State& data_;
  const LossOptions& options_;
  const Derivation& derivation_;
  Gradients gradients_;
};

}  // namespace

Result<Gradients> readGradients(Engine::State& engine, const Task& task, const LossOptions& options, Sums sums) {
  const ProgramSource& source = *task.program.state().source;
  GradientReader reader(task, options);
  sums.failures = withMissingColumns(task, std::move(sums.failures));
  if (source.derivation->isOfScaledLoss()) {
    const ConditionedSums::Take take = [&](auto... args) { reader.take(args...); };
    Status read = ConditionedSums(engine, task, take).run(sums);
    if (!read) return std::move(read).error();
    return std::move(reader).finish(mergeFailures(std::move(sums.failures), {}));
  }
  engine.executor->execute([&] {
    constexpr std::size_t kGrain = 1 << 11;  // expressions
    tbb::parallel_for(tbb::blocked_range<std::size_t>(0, task.program.size(), kGrain), [&](const auto& range) {
      for (std::size_t e = range.begin(); e < range.end(); ++e) {
        const std::size_t output = source.outputOffset(e);
        const std::span<const double> outputs = sums.values.subspan(output, source.outputOffset(e + 1) - output);
        reader.take(e, readSums(outputs, *source.derivation, task.data.state()), outputs);
      }
    });
  });
  return std::move(reader).finish(std::move(sums.failures));
}

namespace {

/// Sums in flight.
template <class Value>
class PendingSums final : public Pending<Value>::State {
 public:
  PendingSums(std::shared_ptr<Engine::State> engine, Task task, LossOptions options, Pending<Losses> sums)
      : engine_(std::move(engine)),
        task_(std::move(task)),
        parameters_(task_.parameters.begin(), task_.parameters.end()),
        options_(std::move(options)),
        sums_(std::move(sums)) {
    task_.parameters = parameters_;
  }
  bool ready() override { return sums_.ready(); }
  void wait() override { sums_.wait(); }
  Result<Value> result() override {
    return guarded([&]() -> Result<Value> {
      Result<Losses> sums = std::move(sums_).result();
      if (!sums) return std::move(sums).error();
      task_.deadline = engine_->deadline();
      Result<Gradients> read = readGradients(*engine_, task_, options_, sumsOf(std::move(*sums)));
      if (!read) return std::move(read).error();
      if constexpr (std::is_same_v<Value, Losses>) {
        return std::move(read->losses);
      } else {
        return read;
      }
    });
  }

 private:
  std::shared_ptr<Engine::State> engine_;  // outlives the rest
  Task task_;
  std::vector<double> parameters_;  ///< the caller's may be gone
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
