// Throughput of the direct tier on one core: expressions per second from optimised graphs to machine code. Counters:
// instructions per expression, and the numbers of registers, refusals and halved groups.
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <benchmark/benchmark.h>

#include "compiler/direct/emitter.h"
#include "passes/pass.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

constexpr std::size_t kDirectExpressions = 8192;
constexpr unsigned kWindow = DirectOptions().window;

/// Trees of 30 nodes over 10 variables, in graphs of `chunk` expressions.
struct Graphs {
  std::vector<Dag> dags;

  Graphs(const char* population, Precision precision, Math math, std::size_t chunk) {
    GeneratorOptions options = *findPopulation(population);
    options.min_nodes = options.max_nodes = 30;
    const auto expressions = ExpressionGenerator(options).batch(kDirectExpressions);
    for (std::size_t first = 0; first < kDirectExpressions; first += chunk) {
      const auto batch = std::span(expressions).subspan(first, chunk);
      dags.push_back(Pipeline::standard(math).run(Dag::fromExpressions(batch, precision), {math}));
    }
  }

  static const Graphs& of(const char* population, Precision precision, Math math, std::size_t chunk) {
    static std::map<std::tuple<std::string, Precision, Math, std::size_t>, Graphs> made;
    return made.try_emplace({population, precision, math, chunk}, population, precision, math, chunk).first->second;
  }
};

void emitDirect(benchmark::State& state, const char* population, bool loss, unsigned window,
                Precision precision = Precision::kF32, Math math = Math::kFast, bool subroutines = false) {
  const Graphs& graphs = Graphs::of(population, precision, math, static_cast<std::size_t>(state.range(0)));
  DirectOptions options{.precision = precision, .math = math, .window = window, .subroutines = subroutines};
  if (loss) options.loss.emplace();
  DirectEmitter emitter = DirectEmitter::create(options).value();
  std::size_t instructions = 0, refused = 0, splits = 0, retries = 0, numbers = 0;
  unsigned registers = 0;
  for (auto _ : state) {
    instructions = refused = splits = retries = numbers = 0;
    for (const Dag& dag : graphs.dags) {
      const DirectPart part = emitter.emit(dag);
      instructions += part.words.size();
      refused += part.refused.size();
      splits += part.splits;
      retries += part.retries;
      numbers += part.parameters.size();
      registers = std::max(registers, part.registers);
    }
  }
  state.counters["instructions"] = static_cast<double>(instructions) / kDirectExpressions;
  state.counters["numbers"] = static_cast<double>(numbers) / kDirectExpressions;
  state.counters["refused"] = static_cast<double>(refused);
  state.counters["splits"] = static_cast<double>(splits);
  state.counters["retries"] = static_cast<double>(retries);
  state.counters["registers"] = registers;
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kDirectExpressions));
}

BENCHMARK_CAPTURE(emitDirect, mixed, "mixed", false, kWindow)->Arg(32)->Arg(4096)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(emitDirect, arithmetic, "arithmetic", false, kWindow)
    ->Arg(32)
    ->Arg(4096)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(emitDirect, mixed_loss, "mixed", true, kWindow)->Arg(32)->Arg(4096)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(emitDirect, arithmetic_loss, "arithmetic", true, kWindow)->Arg(32)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(emitDirect, mixed_loss_in_order, "mixed", true, 1)->Arg(512)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(emitDirect, arithmetic_loss_in_order, "arithmetic", true, 1)->Arg(512)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(emitDirect, mixed_precise_loss_inlined, "mixed", true, 1, Precision::kF32, Math::kPrecise)
    ->Arg(512)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(emitDirect, mixed_precise_loss, "mixed", true, 1, Precision::kF32, Math::kPrecise, true)
    ->Arg(512)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(emitDirect, arithmetic_f64, "arithmetic", false, kWindow, Precision::kF64)
    ->Arg(4096)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(emitDirect, arithmetic_loss_f64, "arithmetic", true, kWindow, Precision::kF64)
    ->Arg(4096)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace srjit
