// Common subtrees of a population: their share of the tokens, the time that machine code saves by computing them once
// per kernel, the effect of the order of expressions, and generations with and without kept values.
#include "tools/bench/scenarios/sharing.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "compiler/lowering/code_weights.h"
#include "runtime/evaluation/optimized_dag.h"
#include "tests/generators/klein_nishina.h"
#include "tools/bench/designs/code.h"

namespace srjit {
namespace {

constexpr std::size_t kUnread = 2;  // generations before the first that can read kept values

std::size_t nodesOfBatches(std::span<const Expression> expressions, std::size_t batch) {
  std::size_t nodes = 0;
  const Pipeline pipeline = Pipeline::standard(Math::kFast);
  for (std::size_t first = 0; first < expressions.size(); first += batch) {
    const auto members = expressions.subspan(first, std::min(batch, expressions.size() - first));
    nodes += must(optimizedDag(members, pipeline, Precision::kF32, Math::kFast)).size();
  }
  return nodes;
}

std::vector<Expression> ordered(std::span<const Expression> expressions) {
  std::vector<std::uint32_t> all(expressions.size());
  std::iota(all.begin(), all.end(), 0U);
  std::vector<Expression> sorted;
  for (const std::uint32_t e : orderedBySharing(Population(expressions), all, Precision::kF32, Math::kFast)) {
    sorted.push_back(expressions[e]);
  }
  return sorted;
}

/// Nodes and times of one population in machine code, in the order given and ordered by what expressions share.
class SharingBench {
 public:
  SharingBench(const Bench& bench, const char* name, std::vector<Expression> expressions, std::size_t columns,
               std::size_t rows)
      : bench_(bench),
        expressions_(std::move(expressions)),
        sorted_(ordered(expressions_)),
        engine_(bench.engine()),
        data_(must(engine_.upload(randomData(columns, rows).view()))),
        subject_(subjectOf(expressions_.size(), name, rows)) {}

  void run() {
    const CachePlan plan = planSubtreeCache(expressions_, SIZE_MAX);
    bench_.add(subject_, "tokens in common subtrees", "part",
               {static_cast<double>(plan.covered) / static_cast<double>(plan.tokens)});
    bench_.add(subject_, "tokens", "nodes", {static_cast<double>(plan.tokens)});
    for (const std::size_t batch : {std::size_t{1}, std::size_t{16}, std::size_t{64}, expressions_.size()}) {
      nodes("as given", expressions_, batch);
      if (batch != 1 && batch != expressions_.size()) nodes("ordered", sorted_, batch);
    }
    timed("as given", expressions_);
    timed("ordered", sorted_);
    alone();
  }

 private:
  void nodes(const char* order, std::span<const Expression> expressions, std::size_t batch) const {
    bench_.add(subject_.with(fmt::format("{}, {} per graph", order, batch), {{"order", order}, {"batch", batch}}),
               "nodes after the passes", "nodes", {static_cast<double>(nodesOfBatches(expressions, batch))});
  }

  double timed(const char* order, std::span<const Expression> expressions) const {
    const auto [program, ready] =
        makeReady(engine_, expressions, data_, {.tier = Tier::kCompile, .group_by_sharing = false});
    const Series series = timeSeries(bench_, engine_, program, data_, 15, 1);
    const Subject subject =
        subject_.with(fmt::format("machine code, {}", order), {{"order", order}, {"kernels_of", expressions.size()}});
    bench_.add(subject, "kernels", "ms", series.device);
    bench_.add(subject, "making ready", "ms", {ready});
    return medianOf(series.device);
  }

  // Kernels of one expression each, which share nothing, against common kernels of the same expressions.
  void alone() const {
    const auto chosen = evenlySpread(sorted_, std::min<std::size_t>(bench_.quick ? 8 : 128, sorted_.size()));
    double seconds = 0;
    for (const Expression& expression : chosen) {
      const Program program = makeReady(engine_, {&expression, 1}, data_, {.tier = Tier::kCompile}).program;
      seconds += medianOf(timeSeries(bench_, engine_, program, data_, 5, 0.05).device);
    }
    bench_.add(subject_.with(fmt::format("machine code, {} expressions, a kernel each", chosen.size()),
                             {{"order", "a kernel each"}, {"kernels_of", chosen.size()}}),
               "kernels", "ms", {seconds});
    timed("common kernels of these", chosen);
  }

  const Bench& bench_;
  const std::vector<Expression> expressions_, sorted_;
  const Engine engine_;
  const Dataset data_;
  const Subject subject_;
};

/// Generations of both populations with and without kept subtrees, in all tiers.
void keptSubtrees(const Bench& bench) {
  const std::size_t expressions = bench.quick ? 100 : 2000, rows = bench.quick ? 250000 : 1000000;
  EngineOptions options = bench.options();
  options.subtree_bytes = std::uint64_t{256} << 20;
  const Engine engine = must(Engine::create(options));
  for (const char* const population : {"formula", "mixed"}) {
    const BenchData columns =
        randomData(population == std::string_view("mixed") ? kTreeColumns : kKleinNishinaVariables, rows);
    for (const Tier tier : tiersOf(engine)) {
      const Subject subject = inTier(subjectOf(expressions, population, rows).with("generations"), tier);
      if (!bench.mayBegin(subject.words)) continue;
      // Fewer generations for LLVM, which takes seconds for each.
      const std::size_t count = bench.quick || tier == Tier::kCompile ? kUnread + 2 : kUnread + 10;
      const Dataset data = must(engine.upload(columns.view()));
      timeKept(bench, engine, data, generationsOf(population, count, expressions), tier, subject);
    }
  }
}

}  // namespace

std::vector<std::vector<Expression>> generationsOf(std::string_view population, std::size_t count,
                                                   std::size_t expressions) {
  constexpr double kNew = 1.0 / 3;
  std::vector<std::vector<Expression>> all;
  if (population == "formula") {
    Generations generations(expressions);
    for (std::size_t i = 0; i < count; ++i, generations.next()) all.push_back(generations.current());
    return all;
  }
  ExpressionGenerator generator(findPopulation(population).value());
  std::vector<Expression> current = generator.batch(expressions);
  Random random(17);
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(current);
    for (Expression& expression : current) {
      if (random.chance(kNew)) expression = generator.next();
    }
  }
  return all;
}

void timeKept(const Bench& bench, const Engine& engine, const Dataset& data,
              std::span<const std::vector<Expression>> generations, Tier tier, const Subject& subject) {
  struct Way {
    std::vector<double> total, kernels, nodes, read;
    std::vector<double> losses = {};
  };
  Way kept, computed;
  const auto evaluate = [&](Way& way, const std::vector<Expression>& expressions, const CompileOptions& options) {
    const Stopwatch watch;
    const Program program = engine.compile(expressions, options);
    must(engine.prepare(program, data, LossOptions{}));
    Losses losses = must(engine.loss(program, data, parametersFor(program, 0)));
    way.total.push_back(watch.seconds());
    if (!losses.failures.empty()) throw BenchFailure{losses.failures.front().error};
    way.losses = std::move(losses.values);
    way.kernels.push_back(program.status().device_seconds);
    way.nodes.push_back(static_cast<double>(program.info().nodes_after));
    way.read.push_back(static_cast<double>(program.info().subtrees_read));
  };
  for (std::size_t g = 0; g < generations.size(); ++g) {
    const auto keep = [&] { evaluate(kept, generations[g], {.tier = tier, .data = &data}); };
    if (g % 2 == 0) keep();
    evaluate(computed, generations[g], {.tier = tier});
    if (g % 2 == 1) keep();
    requireSameBits(kept.losses, computed.losses, fmt::format("losses of generation {} with kept subtrees", g));
  }
  for (const auto& [name, way] : {std::pair("subtrees kept", &kept), std::pair("all computed", &computed)}) {
    const Subject named = subject.with(name, {{"way", name}, {"columns", data.subtrees().capacity}});
    const auto add = [&](const char* metric, const char* unit, std::span<const double> samples) {
      const auto from = samples.subspan(std::min(kUnread, samples.size() - 1));
      bench.add(named, metric, unit, {from.begin(), from.end()});
    };
    add("a generation", "ms", way->total);
    add("kernels of a generation", "ms", way->kernels);
    add("nodes after the passes", "nodes", way->nodes);
    add("columns read", "columns", way->read);
  }
}

void benchSharing(const Bench& bench) {
  const std::size_t count = bench.quick ? 100 : bench.onGpu() ? 2000 : 500;
  const std::size_t rows = bench.quick ? 10000 : bench.onGpu() ? 1000000 : 100000;
  if (bench.mayBegin("formula")) {
    SharingBench(bench, "formula", generationsOf("formula", 6, count).back(), kKleinNishinaVariables, rows).run();
  }
  if (bench.mayBegin("mixed")) SharingBench(bench, "mixed", populationOf("mixed", count), kTreeColumns, rows).run();
  if (bench.onGpu()) keptSubtrees(bench);
}

}  // namespace srjit
