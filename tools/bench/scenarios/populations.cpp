// Random trees of one population in all tiers: rates of the kernels against the roofline of the device.
#include <fmt/format.h>

#include "tools/bench/gpu_context.h"
#include "tools/bench/scenarios/baseline_runs.h"
#include "tools/bench/scenarios/roofline.h"
#include "tools/progress.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSteps = 10;  // of the compared designs

struct Shape {
  std::size_t expressions, rows;
};

std::vector<Shape> shapesOf(const BenchContext& context) {
  if (context.quick) return {{100, 10860}, {16, 50000}};
  if (!context.onGpu()) return {{2000, 10860}, {256, 50000}};
  return {{10000, 10860}, {256, 1000000}};
}

class PopulationBench {
 public:
  PopulationBench(const BenchContext& context, std::string population)
      : context_(context),
        population_(std::move(population)),
        engine_(context.engine(Math::kFast)),
        tiers_(tiersOf(engine_)),
        limits_(deviceLimits(context)) {}

  void run() {
    Json shapes = Json::array();
    const auto all = shapesOf(context_);
    for (std::size_t i = 0; i < all.size(); ++i) {
      shapes.push_back(shape(all[i], context_.left() / static_cast<double>(all.size() - i)));
      context_.report->attach(population_, {{"limits", limits_}, {"shapes", shapes}});
    }
  }

 private:
  Json shape(const Shape& shape, double seconds) {
    const Stopwatch watch;
    const std::vector<Expression> expressions = populationOf(population_, shape.expressions);
    const BenchData data = BenchData::positive(kBenchColumns, shape.rows);
    const Dataset uploaded = must(engine_.upload(data.view()));
    const RowCost cost = rowCost(expressions);
    const auto rows = static_cast<double>(shape.rows);
    const std::string what = fmt::format("{} x {} {}, ", shape.expressions, shape.rows, population_);
    Json tiers = Json::array();
    Progress progress(population_, 2 * tiers_.size(), false);
    for (const Tier tier : tiers_) {
      for (const bool predictions : {false, true}) {
        if (!(predictions ? context_.predictions : context_.losses)) continue;
        Json row =
            measure(expressions, uploaded, tier, predictions, what, seconds / (6 * static_cast<double>(tiers_.size())));
        const double output = predictions ? static_cast<double>(shape.expressions) : 1;
        row["least_seconds"] =
            leastSeconds(limits_, cost, rows, 4 * rows * (static_cast<double>(kBenchColumns) + output));
        tiers.push_back(std::move(row));
        progress.advance();
      }
    }
    const BaselineWork work{population_, what + fmt::format("{} steps", kSteps), data, expressions, kSteps, 0};
    return {{"expressions", shape.expressions},
            {"rows", shape.rows},
            {"tokens", cost.tokens},
            {"instructions", cost.instructions},
            {"special", cost.special},
            {"tiers", std::move(tiers)},
            {"baselines", runBaselines(context_, work, 0.9 * (seconds - watch.seconds()))}};
  }

  Json measure(std::span<const Expression> expressions, const Dataset& data, Tier tier, bool predictions,
               const std::string& what, double limit) {
    const Stopwatch watch;
    const Program program = engine_.compile(expressions, {.tier = tier});
    const auto kind = predictions ? std::nullopt : std::optional(LossOptions{});
    must(engine_.prepare(program, data, kind));
    const double ready = watch.seconds();
    std::vector<float> out(predictions ? expressions.size() * data.rows() : 0);
    const auto once = [&] {
      return predictions ? timePredictions(engine_, program, data, {}, out) : timeLoss(engine_, program, data, {});
    };
    once();
    const double evaluations = nodesOf(expressions) * static_cast<double>(data.rows()) * 1e-12;
    std::vector<double> rates, wall;
    context_.sample(15, limit, [&] {
      const Seconds seconds = once();
      rates.push_back(evaluations / seconds.device);
      wall.push_back(seconds.wall * 1e3);
      return seconds.wall;
    });
    const std::string name = fmt::format("{}{}, {}: ", what, titleOf(tier), predictions ? "predictions" : "losses");
    context_.report->add(population_, {name + "rate of the kernels", "T nodes/s", rates});
    context_.report->add(population_, {name + "parameters to results", "ms", wall});
    context_.report->add(population_, {name + "making ready", "ms", {ready * 1e3}});
    return {{"tier", nameOf(tier)},
            {"result", predictions ? "predictions" : "losses"},
            {"ready_seconds", ready},
            {"rate", medianOf(rates)},
            {"rate_quartiles", {quantileOf(rates, 0.25), quantileOf(rates, 0.75)}},
            {"wall_seconds", medianOf(wall) / 1e3}};
  }

  const BenchContext& context_;
  const std::string population_;
  const Engine engine_;
  const std::vector<Tier> tiers_;
  const Json limits_;
};

}  // namespace

void benchMixed(const BenchContext& context) { PopulationBench(context, "mixed").run(); }
void benchArithmetic(const BenchContext& context) { PopulationBench(context, "arithmetic").run(); }

}  // namespace srjit
