#include "runtime/conditioned_sums.h"

#include <memory>
#include <optional>
#include <utility>

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

namespace srjit {
namespace {

constexpr std::size_t kGrain = 1 << 9;  // expressions

std::span<const double> outputsOf(const Sums& sums, const ProgramSource& source, std::size_t e) {
  const std::size_t first = source.outputOffset(e);
  return sums.values.subspan(first, source.outputOffset(e + 1) - first);
}

std::vector<bool> failed(std::span<const Failure> failures, std::size_t count) {
  std::vector<bool> has_failed(count);
  for (const Failure& failure : failures) has_failed[failure.expression] = true;
  return has_failed;
}

}  // namespace

ConditionedSums::ConditionedSums(Engine::State& engine, const Task& task, const Take& take)
    : engine_(engine), task_(task), source_(*task.program.state().source), data_(task.data.state()), take_(take) {}

template <class Find>
std::vector<ConditionedSums::Entry> ConditionedSums::found(std::size_t count, const Find& find) {
  std::vector<std::optional<Entry>> each(count);
  engine_.executor->execute([&] {
    tbb::parallel_for(tbb::blocked_range<std::size_t>(0, count, kGrain), [&](const auto& range) {
      for (std::size_t i = range.begin(); i < range.end(); ++i) each[i] = find(i);
    });
  });
  std::vector<Entry> entries;
  for (const std::optional<Entry>& entry : each) {
    if (entry) entries.push_back(*entry);
  }
  return entries;
}

Status ConditionedSums::run(Sums& sums) {
  std::vector<Entry> entries = takeFirst(sums);
  for (int times = 1; !entries.empty(); ++times) {
    Result<std::vector<Entry>> left = takeAgain(std::move(entries), times == kMostConditionings, sums.failures);
    if (!left) return std::move(left).error();
    entries = std::move(*left);
  }
  return okStatus();
}

std::vector<ConditionedSums::Entry> ConditionedSums::takeFirst(const Sums& sums) {
  const std::size_t count = source_.expressions.size();
  const std::vector<bool> has_failed = failed(sums.failures, count);
  return found(count, [&](std::size_t e) -> std::optional<Entry> {
    const std::span<const double> outputs = outputsOf(sums, source_, e);
    LossSums of = readSums(outputs, *source_.derivation, data_);
    std::optional<Conditioning> better;
    if (!has_failed[e]) better = betterConditioning(of, {}, source_.precision);
    if (better) return Entry{static_cast<std::uint32_t>(e), *better, of.valid};
    take_(e, of, outputs);
    return {};
  });
}

Result<std::vector<ConditionedSums::Entry>> ConditionedSums::takeAgain(std::vector<Entry> entries, bool is_last,
                                                                       std::vector<Failure>& failures) {
  const Program program = programOf(entries);
  const ProgramSource& source = *program.state().source;
  const std::vector<double> parameters = parametersOf(entries);
  const Result<Sums> sums = runSums(engine_, {.program = program,
                                              .data = task_.data,
                                              .parameters = parameters,
                                              .loss = kPlainSums,
                                              .deadline = task_.deadline});
  if (!sums) return sums.error();
  const std::vector<bool> has_failed = failed(sums->failures, entries.size());
  for (const Failure& failure : sums->failures) {
    failures.push_back({entries[failure.expression].expression, failure.error});
  }
  return found(entries.size(), [&](std::size_t i) -> std::optional<Entry> {
    const Entry& entry = entries[i];
    const std::span<const double> outputs = outputsOf(*sums, source, i);
    LossSums of = readSums(outputs, *source.derivation, data_);
    of.valid = entry.valid;
    std::optional<Conditioning> better;
    if (!has_failed[i]) better = betterConditioning(of, entry.now, source.precision);
    if (better && !is_last) return Entry{entry.expression, *better, entry.valid};
    take_(entry.expression, of, outputs);
    return {};
  });
}

// Machine code of few evaluations: it would take longer to make than they take.
Program ConditionedSums::programOf(std::span<const Entry> entries) {
  std::vector<std::uint32_t> expressions;
  for (const Entry& entry : entries) expressions.push_back(entry.expression);
  const Program::State& program = task_.program.state();
  return program.conditioned.get(expressions, task_.deadline, [&] {
    ProgramSource source = source_.emptyLike();
    engine_.executor->execute(
        [&] { source.setExtended(source_, expressions.size(), [&](std::size_t i) { return expressions[i]; }); });
    const auto state = programLike(program, std::make_shared<const ProgramSource>(source.derive(*source_.derivation)));
    if (state->info.tier == Tier::kCompile) state->info.tier = Tier::kInterpret;
    makeCode(engine_, *state, {.expected_rows = data_.rows}, task_.deadline);
    return Program(state);
  });
}

std::vector<double> ConditionedSums::parametersOf(std::span<const Entry> entries) const {
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

}  // namespace srjit
