// Random trees in all tiers, modes and precisions: rates of the kernels.
#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "tools/bench/work.h"

namespace srjit {
namespace {

constexpr int kDesignSteps = 10;

struct TreesShape {
  std::size_t expressions, rows;
};

std::vector<TreesShape> shapesOf(const Bench& bench) {
  if (bench.quick) return {{100, kTreeRows}, {16, 50000}};
  if (!bench.onGpu()) return {{2000, kTreeRows}, {256, 50000}};
  return {{kTrees, kTreeRows}, {256, 1000000}};
}

/// One tier's rate for losses or predictions.
void measureTier(const Bench& bench, const Engine& engine, const Subject& subject, Tier tier,
                 std::span<const Expression> expressions, const Dataset& data, bool predictions, double limit) {
  const auto [program, ready] = makeReady(engine, expressions, data, {.tier = tier}, predictions);
  std::vector<float> out(predictions ? expressions.size() * data.rows() : 0);
  const Series series = timeSeries(bench, engine, program, data, 15, limit, out);
  const char* const result = predictions ? "predictions" : "losses";
  const Subject named = inTier(subject, tier).with(result, {{"result", result}});
  const ServedExpressions served = program.status().served;
  const bool some = tier == Tier::kDirect && served.direct < program.size();
  bench.add(named, "rate of the kernels", "T nodes/s",
            series.rates(nodesOf(expressions) * static_cast<double>(data.rows())),
            some ? fmt::format("{} of {} expressions have direct code", served.direct, program.size()) : "");
  bench.add(named, "parameters to results", "ms", series.wall);
  bench.add(named, "making ready", "ms", {ready});
}

/// New parameters again and again, each waiting for the losses before.
void measureSteps(const Bench& bench, const Engine& engine, const Subject& subject, const Dataset& data) {
  GeneratorOptions options = *findPopulation("mixed");
  options.parameters = 2;
  options.parameter_probability = 0.25;
  const std::vector<Expression> expressions =
      ExpressionGenerator(options).batch(subject.facts["expressions"].get<std::size_t>());
  const Program program = engine.compile(expressions, {.tier = Tier::kInterpret});
  std::vector<std::vector<double>> parameters;
  for (int step = 0; step < 4; ++step) parameters.push_back(parametersFor(program, step));
  timeLoss(engine, program, data, parameters[0]);
  Series series;
  std::vector<double> over;
  bench.sample(31, 1, [&] {
    series.add(timeLoss(engine, program, data, parameters[over.size() % parameters.size()]));
    over.push_back(series.wall.back() / series.device.back());
    return series.wall.back();
  });
  const Subject named = subject.with("two parameters, interpreter, losses");
  bench.add(named, "host to host over kernels", "times", over);
}

void benchTrees(const Bench& bench, const std::string& population) {
  const Engine engine = bench.engine();
  const std::vector<Tier> tiers = tiersOf(engine);
  std::vector<TreesShape> shapes = shapesOf(bench);
  while (!shapes.empty()) {
    const TreesShape shape = shapes.front();
    const Stopwatch watch;
    const double seconds = bench.left() / static_cast<double>(shapes.size());
    const std::vector<Expression> expressions = populationOf(population, shape.expressions);
    const BenchData columns = positiveData(kTreeColumns, shape.rows);
    const Dataset data = must(engine.upload(columns.view()));
    const Subject subject = subjectOf(shape.expressions, population, shape.rows);
    for (const Tier tier : tiers) {
      const double limit = seconds / (6 * static_cast<double>(tiers.size()));
      if (bench.losses) measureTier(bench, engine, subject, tier, expressions, data, false, limit);
      if (bench.predictions) measureTier(bench, engine, subject, tier, expressions, data, true, limit);
    }
    if (population == "mixed" && shape.rows == kTreeRows) measureSteps(bench, engine, subject, data);
    const DesignWork work{subject.with(fmt::format("{} steps", kDesignSteps)), columns, expressions, kDesignSteps};
    runDesigns(bench, work, 0.9 * (seconds - watch.seconds()));
    shapes.erase(shapes.begin());
  }
}

/// The tiers of `wanted` that the device has, in one precision and mode.
void benchMode(const Bench& bench, const Subject& subject, std::span<const Expression> expressions,
               const BenchData& data, Precision precision, Math math, std::span<const Tier> wanted) {
  EngineOptions options = bench.options(math);
  options.precision = precision;
  const Engine engine = must(Engine::create(options));
  const Subject named = subject.with(fmt::format("{} {}", nameOf(precision), nameOf(math)),
                                     {{"precision", nameOf(precision)}, {"math", nameOf(math)}});
  if (!bench.mayBegin(named.words)) return;
  const Dataset uploaded = must(engine.upload(data.view()));
  for (const Tier tier : tiersOf(engine)) {
    if (std::ranges::find(wanted, tier) == wanted.end()) continue;
    measureTier(bench, engine, named, tier, expressions, uploaded, false, 0.5);
  }
}

}  // namespace

void benchMixed(const Bench& bench) { benchTrees(bench, "mixed"); }
void benchArithmetic(const Bench& bench) { benchTrees(bench, "arithmetic"); }

void benchModes(const Bench& bench) {
  constexpr Tier kWithoutLlvm[] = {Tier::kInterpret, Tier::kDirect}, kWithLlvm[] = {Tier::kCompile};
  const std::size_t trees = bench.quick ? 1000 : kTrees, formulas = bench.quick ? 100 : 2000;
  const std::size_t formula_rows = bench.quick ? 20'000 : bench.onGpu() ? 1'000'000 : 100'000;
  const std::vector<Expression> mixed = populationOf("mixed", trees), formula = populationOf("formula", formulas);
  const BenchData tree_data = randomData(kTreeColumns, kTreeRows), formula_data = formulaData(formula_rows);
  const Subject mixed_subject = subjectOf(trees, "mixed", kTreeRows),
                formula_subject = subjectOf(formulas, "mutated formulas", formula_rows);
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    for (const Math math : {Math::kFast, Math::kPrecise}) {
      benchMode(bench, mixed_subject, mixed, tree_data, precision, math, kWithoutLlvm);
      benchMode(bench, formula_subject, formula, formula_data, precision, math, kWithoutLlvm);
    }
  }
  if (bench.onGpu()) {
    Bench processor = bench;
    processor.device = "cpu";
    const Subject subject = mixed_subject.with("on the processor", {{"device", "cpu"}});
    for (const Math math : {Math::kFast, Math::kPrecise}) {
      benchMode(processor, subject, mixed, tree_data, Precision::kF32, math, kWithoutLlvm);
    }
  }
  // LLVM's code takes the longest to make.
  for (const Math math : {Math::kFast, Math::kPrecise}) {
    benchMode(bench, formula_subject, formula, formula_data, Precision::kF32, math, kWithLlvm);
  }
}

}  // namespace srjit
