// Engine::fit(): the iterations of all expressions together, one launch for a trial of each.
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <tbb/enumerable_thread_specific.h>
#include <tbb/parallel_for.h>

#include "passes/expression_optimizer.h"
#include "passes/gradient/deriver.h"
#include "passes/gradient/linear_parameters.h"
#include "runtime/engine.h"
#include "runtime/engine_tasks.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/fit/levenberg_marquardt.h"
#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

constexpr double kNotFinite = std::numeric_limits<double>::infinity();

/// Finds the linear parameters of one expression after another. Not thread-safe.
class LinearFinder {
 public:
  LinearFinder(Precision precision, Math math)
      : optimizer_(precision, math), deriver_(precision, math), derived_(precision) {}

  std::span<const std::uint32_t> of(const ExpressionView& tokens) {
    optimizer_.run(tokens, 0);
    const ExpressionGraph graph = optimizer_.graph();
    derived_.clear(tokens.size());
    deriver_.differentiate(graph.dag, graph.root, tokens.parameterCount(), derived_);
    return linear_.find(derived_, derived_.roots().subspan(1));
  }

 private:
  ExpressionOptimizer optimizer_;
  Deriver deriver_;
  Dag derived_;
  LinearParameters linear_;
};

/// The fit of one expression from one start.
struct FitEntry {
  std::size_t expression, start;
  fit::ParameterFit fit;
  LossSums rows = {};  ///< which rows count with the best parameters so far
  std::optional<Error> error = {};
};

/// The fits of one call.
class PopulationFit {
 public:
  PopulationFit(Engine::State& engine, Task base, std::span<const double> starts, const FitOptions& options)
      : engine_(engine),
        base_(std::move(base)),
        program_(base_.program.state()),
        source_(*program_.source),
        data_(base_.data.state()),
        options_(options),
        failures_(mergeFailures(program_.failures, failuresForWantOfColumns(source_, data_))),
        derivation_(derivedSums(Quantity::kNormalEquations, data_, options.loss.nan)) {
    engine_.executor->execute([&] { makeEntries(starts); });
  }

  Result<Fits> run() {
    while (!active_.empty()) {
      if (options_.stop.stop_requested()) {
        for (FitEntry* const entry : active_) entry->fit.cancel();
        break;
      }
      makeProgram();
      fillParameters();
      Result<Losses> sums = runTask(engine_, {*derived_, base_.data, parameters_, nullptr, kPlainSums});
      if (!sums) return std::move(sums).error();
      engine_.executor->execute([&] { take(*sums); });
      dropEnded();
    }
    return fits();
  }

 private:
  std::size_t parametersOf(std::size_t expression) const {
    return source_.parameterOffset(expression + 1) - source_.parameterOffset(expression);
  }

  // Expressions without a value have no fit.
  void makeEntries(std::span<const double> starts) {
    const std::size_t count = source_.expressions.size(), all = source_.parameterOffset(count);
    const std::size_t start_count = all == 0 ? 1 : starts.size() / all;
    std::vector<bool> fails(count);
    for (const Failure& failure : failures_) fails[failure.expression] = true;
    entries_.resize(count * start_count);
    tbb::enumerable_thread_specific<LinearFinder> finders(source_.precision, source_.math);
    tbb::parallel_for(std::size_t{0}, count, [&](std::size_t e) {
      if (fails[e]) return;
      const std::span<const std::uint32_t> linear = finders.local().of(source_.expressions[e]);
      for (std::size_t s = 0; s < start_count; ++s) {
        const auto start = starts.subspan(s * all + source_.parameterOffset(e), parametersOf(e));
        entries_[e * start_count + s] =
            std::make_unique<FitEntry>(FitEntry{e, s, fit::ParameterFit(start, linear, source_.precision, options_)});
      }
    });
    for (const auto& entry : entries_) {
      if (entry != nullptr && !entry->fit.done()) active_.push_back(entry.get());
    }
  }

  // Fits that ended stay in the program until they are half of it, since making another takes as long as some launches.
  void makeProgram() {
    if (derived_ && 2 * active_.size() > in_program_.size()) return;
    in_program_ = active_;
    const bool is_whole = in_program_.size() == source_.expressions.size() &&
                          std::ranges::all_of(in_program_, [](const FitEntry* entry) { return entry->start == 0; });
    const auto make = [&](const ProgramSource& source) {
      // So many evaluations as a fit of average length has, which decide about the tier.
      constexpr double kUsualPasses = 15;
      const CompileOptions compile{.expected_evaluations = std::min<double>(options_.iterations, kUsualPasses),
                                   .expected_rows = data_.rows};
      return deriveProgram(engine_, source, program_, derivation_, compile);
    };
    derived_ = is_whole ? program_.derived.get(derivation_, [&] { return make(source_); }) : make(partSource());
    for (const Failure& failure : derived_->failures()) in_program_[failure.expression]->error = failure.error;
  }

  ProgramSource partSource() const {
    ProgramSource part{.precision = source_.precision, .math = source_.math, .pipeline = source_.pipeline};
    for (const FitEntry* const entry : in_program_) part.add(source_.expressions[entry->expression]);
    return part;
  }

  void fillParameters() {
    parameters_.clear();
    for (const FitEntry* const entry : in_program_) {
      const std::span<const double> trial = entry->fit.trial();
      parameters_.insert(parameters_.end(), trial.begin(), trial.end());
    }
  }

  void take(Losses& sums) {
    for (const Failure& failure : sums.failures) in_program_[failure.expression]->error = failure.error;
    tbb::parallel_for(std::size_t{0}, in_program_.size(), [&](std::size_t i) {
      FitEntry& entry = *in_program_[i];
      if (entry.error || entry.fit.done()) return;
      const ProgramSource& source = *derived_->state().source;
      const std::size_t first = source.outputOffset(i), count = source.outputOffset(i + 1) - first;
      takeSums(entry, std::span(sums.values).subspan(first, count));
    });
  }

  // Where rows are left out, sums of different rows are comparable as means.
  void takeSums(FitEntry& entry, std::span<double> outputs) const {
    const LossSums rows = readSums(outputs, derivation_, data_);
    const std::span<double> sums = outputs.first(outputs.size() - derivation_.counts());
    if (derivation_.skips_invalid) {
      // Fewer rows than parameters can be met by chance.
      const bool is_out = options_.loss.nan == NanPolicy::kReject
                              ? rows.valid < rows.rows
                              : !(rows.weights > 0) || rows.valid < entry.fit.parameters().size();
      for (double& sum : sums) sum = is_out ? kNotFinite : sum / rows.weights;
    }
    const double before = entry.fit.loss();
    entry.fit.take(sums);
    if (entry.fit.loss() < before) entry.rows = rows;
  }

  void dropEnded() {
    std::erase_if(active_, [](const FitEntry* entry) { return entry->error || entry->fit.done(); });
  }

  Fits fits() {
    const std::size_t count = source_.expressions.size(), all = source_.parameterOffset(count);
    const std::size_t start_count = count == 0 ? 0 : entries_.size() / count;
    Fits fits{.parameters = std::vector<double>(all, std::numeric_limits<double>::quiet_NaN()),
              .standard_errors = std::vector<double>(all, std::numeric_limits<double>::quiet_NaN())};
    fits.losses.values.resize(count, std::numeric_limits<double>::quiet_NaN());
    fits.losses.valid_rows.resize(count);
    fits.iterations.resize(count);
    fits.statuses.resize(count, FitStatus::kNotFinite);
    fits.starts.resize(count);
    std::vector<Failure> failures;
    for (std::size_t e = 0; e < count; ++e) {
      FitEntry* best = nullptr;
      for (std::size_t s = 0; s < start_count; ++s) {
        FitEntry* const entry = entries_[e * start_count + s].get();
        if (entry == nullptr) break;
        if (best == nullptr || entry->fit.loss() < best->fit.loss()) best = entry;
      }
      if (best == nullptr) continue;
      if (best->error) failures.push_back({e, *best->error});
      write(*best, fits);
    }
    fits.losses.failures = mergeFailures(failures_, std::move(failures));
    return fits;
  }

  void write(FitEntry& entry, Fits& fits) const {
    const std::size_t e = entry.expression;
    const std::size_t first = source_.parameterOffset(e);
    std::ranges::copy(entry.fit.parameters(), fits.parameters.begin() + static_cast<std::ptrdiff_t>(first));
    entry.fit.standardErrors(entry.rows.valid, std::span(fits.standard_errors).subspan(first, parametersOf(e)));
    fits.iterations[e] = entry.fit.passes();
    fits.statuses[e] = entry.fit.status();
    fits.starts[e] = entry.start;
    if (entry.fit.passes() == 0) return;
    LossSums sums = entry.rows;
    sums.terms = entry.fit.loss() * (derivation_.skips_invalid ? sums.weights : 1);
    sums.rows = data_.rows;
    takeLoss(fits.losses, e, sums, data_, options_.loss);
  }

  Engine::State& engine_;
  const Task base_;
  const Program::State& program_;
  const ProgramSource& source_;
  const Dataset::State& data_;
  const FitOptions& options_;
  const std::vector<Failure> failures_;  ///< of expressions that have no fit
  const Derivation derivation_;
  std::vector<std::unique_ptr<FitEntry>> entries_;  ///< those of expression e from e * starts on; null: it fails
  std::vector<FitEntry*> active_, in_program_;
  std::optional<Program> derived_;  ///< of in_program_
  std::vector<double> parameters_;
};

Status checkFit(const Program& program, std::span<const double> starts, const FitOptions& options) {
  const std::size_t all = program.parameterOffset(program.size());
  if (starts.empty() && all > 0) return Error{Errc::kInvalid, "no start for the parameters", {}};
  if (all == 0 ? !starts.empty() : starts.size() % all != 0) {
    return Error{Errc::kInvalid,
                 fmt::format("{} start values: expected a multiple of the program's {} parameters", starts.size(), all),
                 {}};
  }
  if (options.iterations == 0) return Error{Errc::kInvalid, "0 iterations: expected at least 1", {}};
  if (infoOf(options.loss.kind).term != LossTerm::kSquared) {
    std::string names;
    for (const LossInfo& info : allLosses()) {
      if (info.term == LossTerm::kSquared) names += (names.empty() ? "" : ", ") + std::string(info.name);
    }
    return Error{Errc::kInvalid,
                 fmt::format("{} cannot be fitted: expected a loss of squared errors ({})",
                             infoOf(options.loss.kind).name, names),
                 {}};
  }
  return okStatus();
}

}  // namespace

std::string_view nameOf(FitStatus status) noexcept {
  switch (status) {
    case FitStatus::kRunning:
      return "running";
    case FitStatus::kConverged:
      return "converged";
    case FitStatus::kIterations:
      return "iterations";
    case FitStatus::kNoProgress:
      return "failed: no step lowers the loss";
    case FitStatus::kNotFinite:
      return "failed: the start gives no finite loss and derivatives";
    case FitStatus::kSingular:
      return "failed: no parameter has an effect";
    case FitStatus::kCancelled:
      return "failed: cancelled";
  }
  __builtin_unreachable();
}

Result<Fits> Engine::fit(const Program& program, const Dataset& data, std::span<const double> starts,
                         const FitOptions& options) const {
  return guarded([&]() -> Result<Fits> {
    if (Status own = state_->checkProcess(); !own) return std::move(own).error();
    if (Status valid = checkFit(program, starts, options); !valid) return std::move(valid).error();
    const std::size_t count = program.parameterOffset(program.size());
    Task base{program, data, starts.first(count), nullptr, options.loss};
    if (Status valid = checkTask(base, state_->options); !valid) return std::move(valid).error();
    Result<Dataset> behind = state_->executor->withTargetBehind(data);
    if (!behind) return std::move(behind).error();
    base.data = std::move(*behind);
    return PopulationFit(*state_, std::move(base), starts, options).run();
  });
}

}  // namespace srjit
