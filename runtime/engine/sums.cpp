// From sums to losses and gradients.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include "ir/ops.h"
#include "runtime/engine/tasks.h"
#include "runtime/evaluation/loss_value.h"

namespace srjit {
namespace {

constexpr std::size_t kReadGrain = 1 << 11;  // expressions
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
std::size_t derivativeOffset(const Program& program, const std::optional<Derivation>& derivation,
                             std::size_t expression) {
  if (!derivation || derivation->quantity == Quantity::kLoss) return 0;
  return derivation->by == DerivativesBy::kVariables ? expression * derivation->columns
                                                     : program.parameterOffset(expression);
}

LossSpec specOf(const Derivation& derivation) {
  return {.term = derivation.isOfScaledLoss() ? derivation.loss.term : LossTerm::kSquared,
          .weighted = derivation.weighted,
          .skip_invalid = derivation.skips_invalid};
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
  return readSums(outputs, specOf(derivation), derivation.loss.constants, data);
}

namespace {

using Channels = std::array<double, kMostChannels>;

/// The sums of expression e: its outputs of a derivation, or its channels of moments, which are copied to `space`.
std::span<const double> sumsOf(const Sums& sums, const ProgramSource& source, std::size_t e, Channels& space) {
  const std::size_t first = source.outputOffset(e), all = source.outputs();
  if (source.derivation) return sums.values.subspan(first, source.outputOffset(e + 1) - first);
  std::size_t channels = 0;
  for (std::size_t at = first; at < sums.values.size(); at += all) space[channels++] = sums.values[at];
  return std::span(space).first(channels);
}

std::vector<bool> failuresByExpression(std::span<const Failure> failures, std::size_t count) {
  std::vector<bool> has_failed(count);
  for (const Failure& failure : failures) has_failed[failure.expression] = true;
  return has_failed;
}

/// Takes the sums of a derivedTask() of a scaled loss, or of its moments, and evaluates those expressions again whose
/// sums are not accurate (betterConditioning()), only these and at most kMostConditionings times. What an expression
/// gives depends on the expression, its parameters and the data. The programs are kept with the task's. Borrows all.
class ConditionedSums {
 public:
  /// The sums of an expression, and all its outputs: derivatives by its own parameters, then those by the two
  /// parameters of its conditioning. Called once for each expression, by the engine's threads.
  using Take = std::function<void(std::size_t expression, const LossSums& sums, std::span<const double> outputs)>;

  ConditionedSums(Engine::State& engine, const Task& task, const Take& take)
      : engine_(engine),
        task_(task),
        source_(*task.program.state().source),
        data_(task.data.state()),
        spec_(source_.derivation ? specOf(*source_.derivation) : lossSpecOf(task)),
        take_(take) {
    constants_.target_centre = targetCentre(data_);
    if (source_.derivation) constants_ = source_.derivation->loss.constants;
  }

  /// `sums.failures` must have all failures of the first evaluation; those of later ones are added. Errors: those of
  /// runSums(), and kLimit at the task's deadline.
  Status run(Sums& sums) {
    std::vector<Entry> entries = takeFirst(sums);
    for (int times = 1; !entries.empty(); ++times) {
      Result<std::vector<Entry>> left = takeAgain(std::move(entries), times, sums.failures);
      if (!left) return std::move(left).error();
      entries = std::move(*left);
    }
    return okStatus();
  }

 private:
  struct Entry {
    std::uint32_t expression;
    Conditioning now;
    std::uint64_t valid;  ///< rows, as the first sums have them
  };

  /// The entries that `find(i)` gives, by ascending i < count; the engine's threads call it.
  template <class Find>
  std::vector<Entry> found(std::size_t count, const Find& find) {
    std::vector<std::vector<Entry>> blocks((count + kReadGrain - 1) / kReadGrain);
    engine_.executor->execute([&] {
      tbb::parallel_for(std::size_t{0}, blocks.size(), [&](std::size_t block) {
        const std::size_t end = std::min(count, (block + 1) * kReadGrain);
        for (std::size_t i = block * kReadGrain; i < end; ++i) {
          if (const std::optional<Entry> entry = find(i)) blocks[block].push_back(*entry);
        }
      });
    });
    std::vector<Entry> entries;
    for (const std::vector<Entry>& block : blocks) entries.insert(entries.end(), block.begin(), block.end());
    return entries;
  }

  std::vector<Entry> takeFirst(const Sums& sums) {
    const std::size_t count = source_.expressions.size();
    const std::vector<bool> has_failed = failuresByExpression(sums.failures, count);
    return found(count, [&](std::size_t e) -> std::optional<Entry> {
      if (has_failed[e]) return {};
      Channels space;
      const std::span<const double> outputs = sumsOf(sums, source_, e, space);
      LossSums of = readSums(outputs, spec_, constants_, data_);
      const bool has_variables = source_.expressions[e].variableCount() > 0;
      const auto better = nextConditioning(of, {}, 0, has_variables, source_.precision);
      if (better) return Entry{static_cast<std::uint32_t>(e), *better, of.valid};
      take_(e, of, outputs);
      return {};
    });
  }

  Result<std::vector<Entry>> takeAgain(std::vector<Entry> entries, int times, Failures& failures) {
    const Program program = programOf(entries);
    const ProgramSource& source = *program.state().source;
    const std::vector<double> parameters = parametersOf(entries);
    const Result<Sums> sums = runSums(engine_, {.program = program,
                                                .data = task_.data,
                                                .parameters = parameters,
                                                .loss = task_.loss,
                                                .deadline = task_.deadline});
    if (!sums) return sums.error();
    const std::vector<bool> has_failed = failuresByExpression(sums->failures, entries.size());
    for (const Failure& failure : sums->failures) {
      failures.push_back({entries[failure.expression].expression, failure.error});
    }
    return found(entries.size(), [&](std::size_t i) -> std::optional<Entry> {
      if (has_failed[i]) return {};
      const Entry& entry = entries[i];
      Channels space;
      const std::span<const double> outputs = sumsOf(*sums, source, i, space);
      LossSums of = readSums(outputs, spec_, constants_, data_);
      of.valid = entry.valid;
      const auto better = nextConditioning(of, entry.now, times, true, source.precision);
      if (better) return Entry{entry.expression, *better, entry.valid};
      take_(entry.expression, of, outputs);
      return {};
    });
  }

  // Machine code of few evaluations: it would take longer to make than they take.
  Program programOf(std::span<const Entry> entries) {
    std::vector<std::uint32_t> expressions;
    for (const Entry& entry : entries) expressions.push_back(entry.expression);
    const Program::State& program = task_.program.state();
    return program.variants.get(Conditioned{expressions}, task_.deadline, [&] {
      ProgramSource source = source_.emptyLike();
      engine_.executor->execute([&] {
        source.setExtended(
            source_, expressions.size(), [&](std::size_t i) { return expressions[i]; },
            [](std::uint32_t k) { return std::vector{parameterCode(k), parameterCode(k + 1), codeOf(Op::kFma)}; },
            "a scaled loss may need two more");
      });
      const Tier tier = program.info.tier == Tier::kCompile ? Tier::kInterpret : program.info.tier;
      if (source_.derivation) source = source.derive(*source_.derivation);
      return makeVariant(engine_, program, std::move(source), {.tier = tier, .expected_rows = data_.rows},
                         task_.deadline);
    });
  }

  std::vector<double> parametersOf(std::span<const Entry> entries) const {
    std::vector<double> parameters;
    for (const auto& [e, conditioning, valid] : entries) {
      const std::size_t first = source_.parameterOffset(e), last = source_.parameterOffset(e + 1);
      const std::span<const double> own = task_.parameters.subspan(first, last - first);
      parameters.insert(parameters.end(), own.begin(), own.end());
      parameters.push_back(conditioning.factor);
      parameters.push_back(conditioning.offset);
    }
    return parameters;
  }

  Engine::State& engine_;
  const Task& task_;
  const ProgramSource& source_;
  const Dataset::State& data_;
  const LossSpec spec_;
  LossConstants constants_;
  const Take& take_;
};

/// Losses and gradients from sums.
class GradientReader {
 public:
  GradientReader(const Task& task, const LossOptions& options)
      : program_(task.program),
        data_(task.data.state()),
        options_(options),
        derivation_(program_.state().source->derivation) {
    gradients_.losses.values.resize(program_.size());
    gradients_.losses.valid_rows.resize(program_.size());
    gradients_.derivatives.resize(first(program_.size()));
  }

  void take(std::size_t e, const LossSums& sums, std::span<const double> outputs) {
    takeLoss(gradients_.losses, e, sums, data_, options_);
    if (first(e) == first(e + 1)) return;
    const auto slopes = lossSlopes(sums, data_.target_variance, options_);
    const bool is_finite = std::isfinite(gradients_.losses.values[e]);
    const std::size_t terms = derivation_->loss.terms();
    for (std::size_t d = first(e), i = 1; d < first(e + 1); ++d, ++i) {
      const std::span<const double> sums_of = outputs.subspan(terms * i, terms);
      double derivative = slopes[0] * sums_of[0];
      for (std::size_t k = 1; k < terms; ++k) derivative += slopes[k] * sums_of[k];
      gradients_.derivatives[d] = is_finite ? derivative : kNoNumber;
    }
  }
  Gradients finish(Failures failures) && {
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
  const std::optional<Derivation>& derivation_;
  Gradients gradients_;
};

}  // namespace

Result<Gradients> readGradients(Engine::State& engine, const Task& task, const LossOptions& options, Sums sums) {
  const ProgramSource& source = *task.program.state().source;
  GradientReader reader(task, options);
  sums.failures = mergeFailures(failuresForWantOfColumns(source, task.data.state()), std::move(sums.failures));
  if (!source.derivation || source.derivation->isOfScaledLoss()) {
    const ConditionedSums::Take take = [&](auto... args) { reader.take(args...); };
    Status read = ConditionedSums(engine, task, take).run(sums);
    if (!read) return std::move(read).error();
    return std::move(reader).finish(mergeFailures(std::move(sums.failures), {}));
  }
  engine.executor->execute([&] {
    tbb::parallel_for(tbb::blocked_range<std::size_t>(0, task.program.size(), kReadGrain), [&](const auto& range) {
      for (std::size_t e = range.begin(); e < range.end(); ++e) {
        Channels space;
        const std::span<const double> outputs = sumsOf(sums, source, e, space);
        reader.take(e, readSums(outputs, *source.derivation, task.data.state()), outputs);
      }
    });
  });
  return std::move(reader).finish(std::move(sums.failures));
}

}  // namespace srjit
