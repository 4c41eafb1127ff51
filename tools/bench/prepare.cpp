// Throughput of preparing a population for the GPU's interpreter, in expressions per second on one core: text to
// expressions, to graphs of 4096, through the passes, to programs. docs/internals/architecture.md describes the stages.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "compiler/interpreter/bytecode.h"
#include "compiler/interpreter/op_family.h"
#include "ir/text.h"
#include "passes/expression_optimizer.h"
#include "passes/gradient/derived_optimizer.h"
#include "passes/pass.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

constexpr std::size_t kPrepareExpressions = 65536;
constexpr std::size_t kChunk = 4096;
constexpr Math kPrepareMath = Math::kFast;

/// A population of small expressions; the benchmark's name has the number of tokens.
struct Texts {
  std::vector<std::string> texts;
  std::vector<Expression> expressions;
  std::vector<Dag> graphs, ready;  ///< chunks before and after the passes

  explicit Texts(int nodes) {
    GeneratorOptions options = *findPopulation("mixed");
    options.min_nodes = nodes - nodes / 2;
    options.max_nodes = nodes + nodes / 2;
    options.variables = 5;
    expressions = ExpressionGenerator(options).batch(kPrepareExpressions);
    for (const Expression& expression : expressions) texts.push_back(print(expression, Language::kInfix));
    for (std::size_t first = 0; first < kPrepareExpressions; first += kChunk) {
      graphs.push_back(Dag::fromExpressions(std::span(expressions).subspan(first, kChunk), Precision::kF32));
      ready.push_back(Pipeline::standard(kPrepareMath).run(graphs.back(), {kPrepareMath}));
    }
  }

  static const Texts& of(int nodes) {
    static std::map<int, Texts> made;
    return made.try_emplace(nodes, nodes).first->second;
  }
};

void setRate(benchmark::State& state) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kPrepareExpressions));
}

void prepareParse(benchmark::State& state) {
  const Texts& population = Texts::of(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    for (const std::string& text : population.texts) {
      auto expression = parse(text, Language::kInfix);
      benchmark::DoNotOptimize(expression);
    }
  }
  setRate(state);
}

void prepareGraph(benchmark::State& state) {
  const Texts& population = Texts::of(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    for (std::size_t first = 0; first < kPrepareExpressions; first += kChunk) {
      Dag dag = Dag::fromExpressions(std::span(population.expressions).subspan(first, kChunk), Precision::kF32);
      benchmark::DoNotOptimize(dag);
    }
  }
  setRate(state);
}

/// The share of each pass is a counter, in percent.
void preparePasses(benchmark::State& state) {
  const Texts& population = Texts::of(static_cast<int>(state.range(0)));
  const Pipeline pipeline = Pipeline::standard(kPrepareMath);
  for (auto _ : state) {
    for (const Dag& graph : population.graphs) {
      Dag dag = pipeline.run(graph, {kPrepareMath});
      benchmark::DoNotOptimize(dag);
    }
  }
  std::map<std::string, double> seconds;
  for (const Dag& graph : population.graphs) {
    pipeline.run(graph, {kPrepareMath},
                 [&](const Pass& pass, const Dag&, double spent) { seconds[pass.name] += spent; });
  }
  double all = 0;
  for (const auto& [name, spent] : seconds) all += spent;
  for (const auto& [name, spent] : seconds) state.counters[name] = std::round(100 * spent / all);
  setRate(state);
}

/// What engines do instead of all three: token arrays to optimized graphs to programs, one expression at a time.
void prepareAll(benchmark::State& state) {
  Population expressions;
  for (const Expression& expression : Texts::of(static_cast<int>(state.range(0))).expressions) {
    expressions.add(expression);
  }
  const std::span<const Op> ops = opsOf(OpFamily::kAll);
  const HandlerTable table({Precision::kF32, kPrepareMath, {ops.begin(), ops.end()}, 8, kInterpreterDepth});
  EncodeOptions options;
  options.staged_columns = 5;
  ExpressionOptimizer optimizer(Precision::kF32, kPrepareMath);
  Encoder encoder(table);
  Bytecode code;
  for (auto _ : state) {
    code.tokens.clear();
    for (std::uint32_t e = 0; e < expressions.size(); ++e) {
      optimizer.run(expressions[e], 0);
      const std::uint32_t output[] = {e};
      if (!encoder.encode(optimizer.graph(), output, options, code)) state.SkipWithError("a program was rejected");
    }
  }
  state.counters["ns/token"] =
      benchmark::Counter(static_cast<double>(expressions.tokens()) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  setRate(state);
}

/// The same of the sums of a scaled loss.
void prepareScaled(benchmark::State& state) {
  Population expressions;
  for (const Expression& expression : Texts::of(static_cast<int>(state.range(0))).expressions) {
    expressions.add(expression);
  }
  const HandlerTable table({Precision::kF32, kPrepareMath, allOperators(), 8, kInterpreterDepth});
  const Derivation sums{.quantity = Quantity::kLoss, .columns = 5, .loss = {.is_scaled = true}};
  EncodeOptions options;
  options.staged_columns = 6;
  DerivedOptimizer optimizer(Precision::kF32, kPrepareMath);
  Encoder encoder(table);
  Bytecode code;
  const std::uint32_t outputs[kScaledTerms.size()] = {};
  for (auto _ : state) {
    code.tokens.clear();
    for (std::uint32_t e = 0; e < expressions.size(); ++e) {
      const ExpressionGraph graph = optimizer.run(expressions[e], 0, sums);
      if (!encoder.encode(graph, outputs, options, code)) state.SkipWithError("a program was rejected");
    }
  }
  state.counters["ns/token"] =
      benchmark::Counter(static_cast<double>(expressions.tokens()) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  setRate(state);
}

void prepareEncode(benchmark::State& state) {
  const Texts& population = Texts::of(static_cast<int>(state.range(0)));
  const std::span<const Op> ops = opsOf(OpFamily::kCommon);
  const HandlerTable table({Precision::kF32, kPrepareMath, {ops.begin(), ops.end()}, 8, 5});
  EncodeOptions options;
  options.staged_columns = 5;
  Bytecode code;
  Encoder encoder(table);
  for (auto _ : state) {
    code.tokens.clear();
    for (const Dag& dag : population.ready) {
      for (std::uint32_t i = 0; i < dag.roots().size(); ++i) {
        const std::uint32_t root[] = {dag.roots()[i]}, output[] = {i};
        if (!encoder.encode(dag, root, output, options, code)) state.SkipWithError("a program was rejected");
      }
    }
  }
  state.counters["tokens"] = static_cast<double>(code.tokens.size()) / static_cast<double>(kPrepareExpressions);
  setRate(state);
}

BENCHMARK(prepareParse)->Arg(8)->Arg(12)->Arg(30)->Unit(benchmark::kMillisecond);
BENCHMARK(prepareGraph)->Arg(8)->Arg(12)->Arg(30)->Unit(benchmark::kMillisecond);
BENCHMARK(preparePasses)->Arg(8)->Arg(12)->Arg(30)->Unit(benchmark::kMillisecond);
BENCHMARK(prepareAll)->Arg(8)->Arg(12)->Arg(30)->Unit(benchmark::kMillisecond);
BENCHMARK(prepareScaled)->Arg(8)->Arg(12)->Arg(30)->Unit(benchmark::kMillisecond);
BENCHMARK(prepareEncode)->Arg(8)->Arg(12)->Arg(30)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace srjit
