// Throughput of parsers and printers, in expressions per second on one core; and the time per token of a large
// population.
#include <array>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "ir/text.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

constexpr std::size_t kCount = 4096, kPopulation = 250000;

/// Expressions of `nodes` tokens of the operators that populations use, with two parameters.
const std::vector<Expression>& expressionsOf(int nodes) {
  static std::array<std::vector<Expression>, 64> made;
  std::vector<Expression>& expressions = made.at(static_cast<std::size_t>(nodes));
  if (expressions.empty()) {
    GeneratorOptions options = *findPopulation("mixed");
    options.min_nodes = options.max_nodes = nodes;
    options.parameters = 2;
    options.parameter_probability = 0.2;
    expressions = ExpressionGenerator(options).batch(kCount);
  }
  return expressions;
}

void setRates(benchmark::State& state, std::size_t bytes) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kCount));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

void benchmarkParse(benchmark::State& state, Language language) {
  std::vector<std::string> texts;
  std::size_t bytes = 0;
  for (const Expression& e : expressionsOf(static_cast<int>(state.range(0)))) {
    texts.push_back(print(e, language));
    bytes += texts.back().size();
  }
  for (auto _ : state) {
    for (const std::string& text : texts) {
      auto expression = parse(text, language);
      benchmark::DoNotOptimize(expression);
    }
  }
  setRates(state, bytes);
}

void benchmarkPrint(benchmark::State& state, Language language) {
  const std::vector<Expression>& expressions = expressionsOf(static_cast<int>(state.range(0)));
  std::size_t bytes = 0;
  for (const Expression& e : expressions) bytes += print(e, language).size();
  for (auto _ : state) {
    for (const Expression& e : expressions) {
      std::string text = print(e, language);
      benchmark::DoNotOptimize(text);
    }
  }
  setRates(state, bytes);
}

/// Postfix texts of small expressions, and how many tokens they have.
struct PopulationTexts {
  std::vector<std::string> texts;
  std::size_t tokens = 0;

  PopulationTexts() {
    for (const Expression& e : ExpressionGenerator(*findPopulation("small")).batch(kPopulation)) {
      texts.push_back(print(e, Language::kPostfix));
      tokens += e.size();
    }
  }
  static const PopulationTexts& get() {
    static const PopulationTexts made;
    return made;
  }
  /// Sets the counter "token" to the seconds per token.
  void setRate(benchmark::State& state) const {
    using benchmark::Counter;
    state.counters["token"] =
        Counter(static_cast<double>(tokens), Counter::kIsIterationInvariantRate | Counter::kInvert);
  }
};

void parsePopulation(benchmark::State& state) {
  const PopulationTexts& population = PopulationTexts::get();
  std::vector<Expression> expressions;
  expressions.reserve(kPopulation);
  for (auto _ : state) {
    for (const std::string& text : population.texts) expressions.push_back(*parse(text, Language::kPostfix));
    state.PauseTiming();
    expressions.clear();
    state.ResumeTiming();
  }
  population.setRate(state);
}

void parsePopulationTokens(benchmark::State& state) {
  const PopulationTexts& population = PopulationTexts::get();
  std::vector<Token> tokens;
  for (auto _ : state) {
    tokens.clear();
    for (const std::string& text : population.texts) {
      auto needs = parseTokens(text, Language::kPostfix, {}, tokens);
      benchmark::DoNotOptimize(needs);
    }
  }
  population.setRate(state);
}

BENCHMARK(parsePopulation);
BENCHMARK(parsePopulationTokens);
BENCHMARK_CAPTURE(benchmarkParse, postfix, Language::kPostfix)->Arg(8)->Arg(30);
BENCHMARK_CAPTURE(benchmarkParse, infix, Language::kInfix)->Arg(8)->Arg(30);
BENCHMARK_CAPTURE(benchmarkParse, prefix, Language::kPrefix)->Arg(8)->Arg(30);
BENCHMARK_CAPTURE(benchmarkParse, json, Language::kJson)->Arg(8)->Arg(30);
BENCHMARK_CAPTURE(benchmarkPrint, postfix, Language::kPostfix)->Arg(8)->Arg(30);
BENCHMARK_CAPTURE(benchmarkPrint, infix, Language::kInfix)->Arg(8)->Arg(30);
BENCHMARK_CAPTURE(benchmarkPrint, prefix, Language::kPrefix)->Arg(8)->Arg(30);
BENCHMARK_CAPTURE(benchmarkPrint, json, Language::kJson)->Arg(8)->Arg(30);

}  // namespace
}  // namespace srjit
