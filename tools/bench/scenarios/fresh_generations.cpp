#include "tools/bench/scenarios/fresh_generations.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "ir/numeric.h"
#include "tests/generators/klein_nishina.h"
#include "tests/generators/token_arrays.h"
#include "tools/bench/baselines/design.h"

namespace srjit {
namespace {

TokenArrays arraysOf(std::span<const Expression> generation) {
  TokenArrays arrays;
  for (const Expression& expression : generation) arrays.addPostfix(expression);
  return arrays;
}

/// The first time that an engine gets these expressions.
Program firstProgram(const Engine& engine, const TokenArrays& generation, Tier tier, std::size_t rows) {
  Program program = must(engine.compile(generation.view(), {.tier = tier, .expected_rows = rows}));
  if (!program.failures().empty()) throw BenchFailure{program.failures().front().error};
  return program;
}

template <class T>
void shuffle(Random& random, std::span<T> values) {
  for (std::size_t left = values.size(); left > 1; --left) std::swap(values[left - 1], values[random.below(left)]);
}

}  // namespace

std::vector<Expression> freshPopulation(FreshKind kind, std::size_t count, std::uint64_t seed) {
  if (kind == FreshKind::kMutants) return Generations(count, seed).current();
  const char* const name = kind == FreshKind::kSmall ? "small" : "mixed";
  return ExpressionGenerator(findPopulation(name, seed).value()).batch(count);
}

std::vector<Expression> FreshSource::next(std::size_t count) {
  std::vector<Expression> generation;
  std::vector<std::uint64_t> hashes;
  generation.reserve(count);
  hashes.reserve(count);
  while (generation.size() < count) {
    for (Expression& expression : freshPopulation(kind_, count - generation.size(), ++seed_)) {
      const std::uint64_t hash = hashOf(expression);
      if (seen_.contains(hash)) continue;
      generation.push_back(std::move(expression));
      hashes.push_back(hash);
    }
  }
  seen_.insert(hashes.begin(), hashes.end());
  return generation;
}

BenchData dataFor(FreshKind kind, std::size_t rows) {
  if (kind == FreshKind::kMutants) return BenchData::ofFormula(rows);
  return BenchData::positive(kind == FreshKind::kSmall ? 2 : kBenchColumns, rows);
}

NextGeneration halfKept(std::span<const Expression> last, std::span<const Expression> fresh, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::size_t> from(last.size());
  std::iota(from.begin(), from.end(), std::size_t{0});
  shuffle(random, std::span(from));
  std::fill(from.begin() + static_cast<std::ptrdiff_t>(from.size() / 2), from.end(), NextGeneration::kNew);
  shuffle(random, std::span(from));
  NextGeneration next{.expressions = {}, .from = std::move(from)};
  next.expressions.reserve(last.size());
  for (std::size_t taken = 0; const std::size_t place : next.from) {
    next.expressions.push_back(place == NextGeneration::kNew ? fresh[taken++] : last[place]);
  }
  return next;
}

FreshRun timeFresh(const Engine& engine, const Dataset& data, std::span<const Expression> generation, Tier tier) {
  const std::vector<double> parameters = parameterNumbers(parameterOffsets(generation).back(), 0);
  const TokenArrays arrays = arraysOf(generation);
  const Stopwatch watch;
  Program program = firstProgram(engine, arrays, tier, data.rows());
  const double compiled = watch.seconds();
  Losses losses = must(engine.loss(program, data, parameters));
  const double total = watch.seconds();
  if (!losses.failures.empty()) throw BenchFailure{losses.failures.front().error};
  const ProgramStatus status = program.status();
  const Seconds again = timeLoss(engine, program, data, parameters);
  // Where machine code serves, it was made after compile().
  const double made = status.tier == Tier::kInterpret ? 0 : status.seconds_compiling;
  const FreshTimes times = {.total = total * kMillisPerSecond,
                            .compile = compiled * kMillisPerSecond,
                            .passes = program.info().seconds_passes * kMillisPerSecond,
                            .encoding = (program.info().seconds_codegen + made) * kMillisPerSecond,
                            .kernels = status.device_seconds * kMillisPerSecond,
                            .again = again.wall * kMillisPerSecond,
                            .again_kernels = again.device * kMillisPerSecond};
  return {.times = times, .tier = status.tier, .losses = std::move(losses.values), .program = std::move(program)};
}

OneCall timeOneCall(const Engine& engine, const Dataset& data, std::span<const Expression> generation, Tier tier) {
  const std::vector<double> parameters = parameterNumbers(parameterOffsets(generation).back(), 0);
  const TokenArrays arrays = arraysOf(generation);
  const Stopwatch watch;
  Losses losses = must(engine.loss(arrays.view(), data, parameters, {}, {.tier = tier}));
  const double seconds = watch.seconds();
  if (!losses.failures.empty()) throw BenchFailure{losses.failures.front().error};
  return {seconds * kMillisPerSecond, std::move(losses.values)};
}

void compareKept(const NextGeneration& generation, std::span<const double> losses, std::span<const double> before) {
  for (std::size_t e = 0; e < losses.size(); ++e) {
    const std::size_t from = generation.from[e];
    if (from == NextGeneration::kNew || sameBits(losses[e], before[from])) continue;
    throw BenchFailure{{Errc::kMachine,
                        fmt::format("expression {} has a loss of {}, but had one of {} in the generation before", e,
                                    losses[e], before[from]),
                        {}}};
  }
}

double frontEndNanoseconds(const Engine& engine, std::span<const Expression> generation) {
  const ProgramInfo info = firstProgram(engine, arraysOf(generation), Tier::kInterpret, 0).info();
  return (info.seconds_passes + info.seconds_codegen) * 1e9 / static_cast<double>(info.nodes_before);
}

}  // namespace srjit
