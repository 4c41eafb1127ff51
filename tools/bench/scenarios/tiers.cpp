// Break-even numbers of rows and evaluations for direct code and LLVM's machine code: measured, from seconds per
// evaluation and of preparation, and predicted by the engine.
#include <array>
#include <cmath>
#include <span>
#include <thread>
#include <tuple>

#include <fmt/format.h>

#include "runtime/code/calibration.h"
#include "runtime/code/parts.h"
#include "runtime/evaluation/code_groups.h"
#include "runtime/host/cost_model.h"
#include "tests/generators/klein_nishina.h"
#include "tools/bench/gpu_context.h"
#include "tools/progress.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::size_t, 5> kAllRows = {100, 1000, 10'000, 100'000, 1'000'000};
constexpr std::array<std::size_t, 3> kQuickRows = {100, 10'000, 100'000};
constexpr std::array<std::size_t, 1> kQuickPopulationRows = {1000};

constexpr const char* kFormula = "formula";

/// The expressions of a map: one of the populations of tests/generators/population.h, or mutated copies of the
/// Klein-Nishina formula (kFormula).
struct MapShape {
  const char* population;
  Precision precision;
  std::size_t expressions;

  std::string name() const { return fmt::format("{} {} {}", expressions, population, srjit::nameOf(precision)); }
  std::vector<Expression> make() const {
    return population == std::string_view(kFormula) ? Generations(expressions).current()
                                                    : populationOf(population, expressions);
  }
};

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
    // Of `fast`, whose common functions are short.
    const auto pays = [&] { return hostCompilingPays({.nodes = 1, .evaluations = evaluations, .rows = rows}); };
    while (!pays() && evaluations < 1e9) evaluations *= 1.05;
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
  BreakEvenMap(const BenchContext& context, std::string part, const MapShape& shape)
      : context_(context),
        part_(std::move(part)),
        shape_(shape),
        engine_(context.engine(Math::kFast, "cache", shape.precision)),
        has_direct_(hasDirect(engine_)),
        processor_(must(Engine::create({.device = "cpu", .precision = shape.precision, .math = Math::kFast}))),
        expressions_(shape.make()) {}

  Json run(std::span<const std::size_t> rows) {
    Json points = Json::array();
    std::optional<Program> compiled;
    TierSeconds compile;
    for (const std::size_t count : rows) {
      if (!context_.mayBegin(part_, fmt::format("{} x {} rows", shape_.name(), count))) continue;
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
    return {{"population", shape_.population},
            {"precision", srjit::nameOf(shape_.precision)},
            {"expressions", expressions_.size()},
            {"tokens", nodesOf(expressions_)},
            {"points", std::move(points)}};
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
    point["cpu_evaluation_seconds"] = evaluation(processor_, program, data);
  }

  /// Compares LLVM's code with the tier that serves before it: direct code if available.
  Json point(std::size_t rows, const TierSeconds& interpret, const std::optional<TierSeconds>& direct,
             const TierSeconds& compile) const {
    Json json = {
        {"rows", rows},
        {"interpret_ready_seconds", interpret.ready},
        {"interpret_evaluation_seconds", interpret.evaluation},
        {"compile_ready_seconds", compile.ready},
        {"compiled_evaluation_seconds", compile.evaluation},
        {"measured_evaluations", breakEven(direct.value_or(interpret), compile)},
        {"predicted_evaluations", predictedEvaluations(context_, Tier::kCompile, has_direct_, expressions_, rows)}};
    if (!direct) return json;
    json["direct_ready_seconds"] = direct->ready;
    json["direct_evaluation_seconds"] = direct->evaluation;
    json["measured_direct_evaluations"] = breakEven(interpret, *direct);
    json["predicted_direct_evaluations"] = predictedEvaluations(context_, Tier::kDirect, true, expressions_, rows);
    return json;
  }

  void addFigures(const Json& point) const {
    const std::string what = fmt::format("{} x {} rows: ", shape_.name(), point["rows"].get<std::size_t>());
    for (const std::string tier :
         {"interpret_evaluation", "direct_evaluation", "compiled_evaluation", "cpu_evaluation"}) {
      if (!point.contains(tier + "_seconds")) continue;
      context_.report->add(part_, {what + tier, "ms", {point[tier + "_seconds"].get<double>() * 1e3}});
    }
    for (const auto& [name, key] : {std::pair<std::string, std::string>("machine code", "evaluations"),
                                    std::pair<std::string, std::string>("direct code", "direct_evaluations")}) {
      const auto measured = point.find("measured_" + key), predicted = point.find("predicted_" + key);
      if (measured == point.end() || measured->is_null()) continue;
      context_.report->add(
          part_, {what + name + " repays, measured",
                  "evaluations",
                  {measured->get<double>()},
                  {},
                  "predicted: " + (predicted->is_null() ? "never" : fmt::format("{}", predicted->get<double>()))});
    }
  }

  const BenchContext& context_;
  const std::string part_;
  const MapShape shape_;
  const Engine engine_;
  const bool has_direct_;
  const Engine processor_;
  const std::vector<Expression> expressions_;
};

void drawMaps(const BenchContext& context, const std::string& part, const std::vector<MapShape>& shapes,
              std::span<const std::size_t> rows) {
  Json maps = Json::array();
  Progress progress(part, shapes.size(), false);
  for (const MapShape& shape : shapes) {
    maps.push_back(BreakEvenMap(context, part, shape).run(rows));
    progress.advance();
  }
  context.report->attach(part, {{"maps", std::move(maps)}});
}

}  // namespace

void benchTiers(const BenchContext& context) {
  const auto mixed = [](std::size_t expressions) { return MapShape{"mixed", Precision::kF32, expressions}; };
  if (context.quick) return drawMaps(context, "tiers", {mixed(32)}, kQuickRows);
  std::vector<MapShape> shapes = {mixed(100)};
  if (context.onGpu()) shapes.push_back(mixed(2000));
  drawMaps(context, "tiers", shapes, kAllRows);
}

void benchTiersPopulations(const BenchContext& context) {
  const std::size_t few = context.quick ? 4 : 100, many = context.onGpu() && !context.quick ? 2000 : few;
  const std::vector<MapShape> shapes = {{"arithmetic", Precision::kF32, many},
                                        {"arithmetic", Precision::kF64, many},
                                        {kFormula, Precision::kF32, many},
                                        {"mixed", Precision::kF64, few}};
  if (context.quick) return drawMaps(context, "tiers-populations", shapes, kQuickPopulationRows);
  drawMaps(context, "tiers-populations", shapes, kAllRows);
}

}  // namespace srjit
