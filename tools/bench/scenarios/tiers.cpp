// Break-even numbers of rows and evaluations ("passes" in the JSON) for direct code and LLVM's machine code: measured,
// from seconds per evaluation and of preparation, and predicted by the engine.
#include <cmath>
#include <thread>
#include <tuple>

#include <fmt/format.h>

#include "runtime/code/calibration.h"
#include "runtime/code/parts.h"
#include "runtime/evaluation/code_groups.h"
#include "runtime/host/cost_model.h"
#include "tools/bench/gpu_bench.h"
#include "tools/progress.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTiersPart = "tiers";

/// Times of a tier.
struct TierSeconds {
  double ready = 0, evaluation = 0;
};

/// Evaluations from which on the total of `better` is lower, preparation included; null if it never is.
Json breakEven(const TierSeconds& serving, const TierSeconds& better) {
  const double gain = serving.evaluation - better.evaluation;
  return gain > 0 ? Json(std::max(1.0, std::ceil((better.ready - serving.ready) / gain))) : Json();
}

/// The least number of evaluations for which makingPays() holds; null if there is none.
Json leastEvaluations(double serving, double better, double node_rows, double making_seconds) {
  const double evaluations = std::max(1.0, std::floor(making_seconds / (serving * node_rows)) + 1);
  return makingPays(serving, better, evaluations, node_rows, making_seconds) ? Json(evaluations) : Json();
}

/// The number of evaluations from which on the engine makes code of a tier, null if it never does; on a GPU, by the
/// typical costs that it assumes before calibration.
Json predictedEvaluations(const BenchContext& context, Tier tier, bool has_direct,
                          std::span<const Expression> expressions, std::size_t rows) {
  if (!context.onGpu()) {
    double evaluations = 1;
    while (!srjit::compilingPays(evaluations, rows) && evaluations < 1e9) evaluations *= 1.05;
    return std::ceil(evaluations);
  }
  const double nodes = nodesOf(expressions), node_rows = nodes * static_cast<double>(rows);
  const std::size_t cores = std::thread::hardware_concurrency();
  const DeviceCosts& costs = kTypicalCosts;
  if (tier == Tier::kDirect) {
    return leastEvaluations(costs.interpret, costs.direct, node_rows, writingSeconds(costs, nodes, cores));
  }
  if (has_direct) return {};  // then nothing is compiled
  const std::size_t kernels = ceilDivide(expressions.size(), kExpressionsPerKernel);
  return leastEvaluations(costs.interpret, costs.compiled, node_rows, compileSeconds(costs, nodes, kernels, cores));
}

class BreakEvenMap {
 public:
  BreakEvenMap(const BenchContext& context, std::size_t count)
      : context_(context),
        engine_(context.engine(Math::kFast)),
        has_direct_(hasDirect(engine_)),
        processor_(must(Engine::create({.device = "cpu", .math = Math::kFast}))),
        expressions_(populationOf("mixed", count)) {}

  Json run(const std::vector<std::size_t>& rows) {
    Json points = Json::array();
    std::optional<Program> compiled;
    TierSeconds compile;
    for (const std::size_t count : rows) {
      if (!context_.mayBegin(kTiersPart, fmt::format("{} mixed x {} rows", expressions_.size(), count))) continue;
      const Dataset data = must(engine_.upload(BenchData(kBenchColumns, count).view()));
      const auto [interpreted, interpret_ready] = made(engine_, Tier::kInterpret, data);
      const TierSeconds interpret{interpret_ready, evaluation(engine_, interpreted, data)};
      std::optional<TierSeconds> direct;
      if (has_direct_) {
        const auto [program, ready] = made(engine_, Tier::kDirect, data);
        direct = {ready, evaluation(engine_, program, data)};
      }
      if (!compiled) std::tie(compiled, compile.ready) = made(engine_, Tier::kCompile, data);
      compile.evaluation = evaluation(engine_, *compiled, data);
      points.push_back(point(count, interpret, direct, compile));
      if (context_.onGpu()) addProcessor(points.back());
      addFigures(points.back());
    }
    return {{"expressions", expressions_.size()}, {"tokens", nodesOf(expressions_)}, {"points", std::move(points)}};
  }

 private:
  std::pair<Program, double> made(const Engine& engine, Tier tier, const Dataset& data) const {
    const Stopwatch watch;
    Program program = engine.compile(expressions_, {.tier = tier});
    if (tier != Tier::kInterpret) must(engine.prepare(program, data, LossOptions{}));
    return {std::move(program), watch.seconds()};
  }

  double evaluation(const Engine& engine, const Program& program, const Dataset& data) const {
    timeLoss(engine, program, data, {});
    return medianOf(context_.sample(15, 0.4, [&] { return timeLoss(engine, program, data, {}).wall; }));
  }

  /// Adds the processor's interpreter to the tiers of the GPU.
  void addProcessor(Json& point) const {
    const Dataset data = must(processor_.upload(BenchData(kBenchColumns, point["rows"].get<std::size_t>()).view()));
    const auto [program, ready] = made(processor_, Tier::kInterpret, data);
    point["cpu_ready_seconds"] = ready;
    point["cpu_pass_seconds"] = evaluation(processor_, program, data);
  }

  /// Compares LLVM's code with the tier that serves before it: direct code if available.
  Json point(std::size_t rows, const TierSeconds& interpret, const std::optional<TierSeconds>& direct,
             const TierSeconds& compile) const {
    Json json = {{"rows", rows},
                 {"interpret_ready_seconds", interpret.ready},
                 {"interpret_pass_seconds", interpret.evaluation},
                 {"compile_ready_seconds", compile.ready},
                 {"compiled_pass_seconds", compile.evaluation},
                 {"measured_passes", breakEven(direct.value_or(interpret), compile)},
                 {"predicted_passes", predictedEvaluations(context_, Tier::kCompile, has_direct_, expressions_, rows)}};
    if (!direct) return json;
    json["direct_ready_seconds"] = direct->ready;
    json["direct_pass_seconds"] = direct->evaluation;
    json["measured_direct_passes"] = breakEven(interpret, *direct);
    json["predicted_direct_passes"] = predictedEvaluations(context_, Tier::kDirect, true, expressions_, rows);
    return json;
  }

  void addFigures(const Json& point) const {
    const std::string what = fmt::format("{} mixed x {} rows: ", expressions_.size(), point["rows"].get<std::size_t>());
    for (const std::string tier : {"interpret_pass", "direct_pass", "compiled_pass", "cpu_pass"}) {
      if (!point.contains(tier + "_seconds")) continue;
      context_.report->add(kTiersPart, {what + tier, "ms", {point[tier + "_seconds"].get<double>() * 1e3}});
    }
    for (const auto& [name, key] : {std::pair<std::string, std::string>("machine code", "passes"),
                                    std::pair<std::string, std::string>("direct code", "direct_passes")}) {
      const auto measured = point.find("measured_" + key), predicted = point.find("predicted_" + key);
      if (measured == point.end() || measured->is_null()) continue;
      context_.report->add(
          kTiersPart, {what + name + " repays, measured",
                       "passes",
                       {measured->get<double>()},
                       {},
                       "predicted: " + (predicted->is_null() ? "never" : fmt::format("{}", predicted->get<double>()))});
    }
  }

  const BenchContext& context_;
  const Engine engine_;
  const bool has_direct_;
  const Engine processor_;
  const std::vector<Expression> expressions_;
};

}  // namespace

void benchTiers(const BenchContext& context) {
  std::vector<std::size_t> rows = {100, 1000, 10000, 100000, 1000000}, counts = {100, 2000};
  if (!context.onGpu()) counts = {100};
  if (context.quick) rows = {100, 10000, 100000}, counts = {32};
  Json maps = Json::array();
  Progress progress(kTiersPart, counts.size(), false);
  for (const std::size_t count : counts) {
    maps.push_back(BreakEvenMap(context, count).run(rows));
    progress.advance();
  }
  context.report->attach(kTiersPart, {{"maps", std::move(maps)}});
}

}  // namespace srjit
