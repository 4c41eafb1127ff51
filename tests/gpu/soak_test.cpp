// Long comparisons of tiers, bit for bit, on real hardware: SRJIT_SOAK_SECONDS each (default 2).
#include <atomic>
#include <cstring>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "ir/numbers/rounding.h"
#include "runtime/platform/clock.h"
#include "tests/generators/environment.h"
#include "tests/gpu/machine.h"

namespace srjit {
namespace {

template <class T>
std::optional<std::size_t> firstDifference(const std::vector<T>& a, const std::vector<T>& b) {
  // Fast, and nearly always enough.
  if (std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0) return std::nullopt;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!sameBits(a[i], b[i])) return i;
  }
  return std::nullopt;
}

/// Compares all predictions and losses of random populations, of all operators and at most `most_expressions`
/// expressions, over random data of random size, bit for bit, for SRJIT_SOAK_SECONDS seconds (default 2), and prints
/// how many. Expects that half of the expressions or more have code of `one.tier`, if that is not the interpreter. Both
/// engines have the precision. Six threads draw from SRJIT_SOAK_SEED (default 1000) and the numbers after it, so a run
/// with a seed six higher compares others.
template <class T>
void soakOf(const Evaluator& one, const Evaluator& other, std::size_t most_expressions) {
  const auto seconds = static_cast<double>(numberInEnvironment("SRJIT_SOAK_SECONDS", 2));
  const std::uint64_t first_seed = numberInEnvironment("SRJIT_SOAK_SEED", 1000);
  constexpr std::size_t kThreads = 6, kPopulationsOfData = 20;
  const Stopwatch watch;
  std::atomic<std::uint64_t> results = 0, populations = 0, all = 0, compiled = 0;
  const auto compare = [&](std::size_t thread) {
    Random random(first_seed + thread);
    std::vector<T> values, others;
    while (watch.seconds() < seconds && !testing::Test::HasFailure()) {
      const std::size_t rows = 1 + random.below(200'000);
      const Workload w = Workload::random(generatorOf(random.next(), 20), 1, rows, Spread::kSpecial, kPrecisionOf<T>);
      const Dataset data = one.engine.upload(w.view()).value(), other_data = other.engine.upload(w.view()).value();
      for (std::size_t i = 0; i < kPopulationsOfData && watch.seconds() < seconds; ++i) {
        const std::size_t count = 1 + random.below(most_expressions);
        const auto expressions = ExpressionGenerator(generatorOf(random.next(), random.between(2, 60))).batch(count);
        const Program program = one.engine.compile(expressions, {.tier = one.tier});
        const Program other_program = other.engine.compile(expressions, {.tier = other.tier});
        std::vector<double> parameters(program.parameterOffset(count));
        for (double& parameter : parameters) parameter = random.magnitude(-6, 6);
        values.resize(count * rows);
        others.resize(count * rows);
        ASSERT_TRUE(one.engine.evaluate(program, data, parameters, std::span(values)));
        ASSERT_TRUE(other.engine.evaluate(other_program, other_data, parameters, std::span(others)));
        const auto difference = firstDifference(values, others);
        ASSERT_FALSE(difference) << "expression " << *difference / rows << " of " << count << ", row "
                                 << *difference % rows << " of " << rows << ": " << values[*difference]
                                 << " instead of " << others[*difference] << "\n"
                                 << print(expressions[*difference / rows], Language::kPostfix);
        expectSameLosses(lossesOf(one.engine, program, data, parameters, kPlain),
                         lossesOf(other.engine, other_program, other_data, parameters, kPlain), "soak");
        results += values.size();
        ++populations;
        all += count;
        compiled += program.status().compiled;
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) threads.emplace_back(compare, t);
  for (std::thread& thread : threads) thread.join();
  fmt::print("soak: {} predictions of {} populations compared in {:.1f} s\n", results.load(), populations.load(),
             watch.seconds());
  if (one.tier == Tier::kInterpret) return;
  EXPECT_GE(static_cast<double>(compiled), 0.5 * static_cast<double>(all));
  fmt::print("      {} of {} expressions had code\n", compiled.load(), all.load());
}

void soak(const Evaluator& one, const Evaluator& other, Precision precision, std::size_t most_expressions = 500) {
  withZeroOf(precision, [&]<class T>(T) { soakOf<T>(one, other, most_expressions); });
}

class Soak : public GpuInMode {
 protected:
  Evaluator tier(Tier tier) const { return {engine(), tier}; }
};

TEST_P(Soak, DirectCodeAndTheInterpreter) {
  if (engine().options().device == "cpu") GTEST_SKIP() << "the processor has no direct tier";
  soak(tier(Tier::kDirect), tier(Tier::kInterpret), mode().precision);
}

// LLVM and the assembler take milliseconds for an expression.
TEST_P(Soak, LlvmsCodeAndTheInterpreter) {
  constexpr std::size_t kMostExpressions = 40;
  soak(tier(Tier::kCompile), tier(Tier::kInterpret), mode().precision, kMostExpressions);
}

class ProcessorSoak : public Soak {};

TEST_P(ProcessorSoak, BothInterpreters) {
  if (engine().options().device == "cpu") GTEST_SKIP() << "the processor would be compared with itself";
  const Engine cpu = Engine::create({.device = "cpu", .precision = mode().precision, .math = mode().math}).value();
  soak(tier(Tier::kInterpret), {cpu, Tier::kInterpret}, mode().precision);
}

INSTANTIATE_TEST_SUITE_P(Modes, Soak, testing::ValuesIn(allModes()), modeName);
INSTANTIATE_TEST_SUITE_P(Modes, ProcessorSoak, testing::ValuesIn(modesOfTheProcessor()), modeName);

}  // namespace
}  // namespace srjit
