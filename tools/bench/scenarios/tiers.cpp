// From how many rows and passes on machine code repays what it costs: measured, by seconds of a pass and of making it,
// and as the engine predicts it.
#include <cmath>
#include <thread>

#include <fmt/format.h>

#include "runtime/calibration.h"
#include "runtime/cost_model.h"
#include "runtime/device_code.h"
#include "tools/bench/gpu_bench.h"
#include "tools/progress.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPart = "tiers";
constexpr std::size_t kColumns = 10;

/// Passes from which on making machine code first is quicker; nothing if it never is.
Json breakEven(double interpret_ready, double interpret_pass, double compile_ready, double compiled_pass) {
  const double gain = interpret_pass - compiled_pass;
  return gain > 0 ? Json(std::max(1.0, std::ceil((compile_ready - interpret_ready) / gain))) : Json();
}

/// From how many passes on the engine begins to compile. On a GPU with the costs it expects before it has measured.
double predictedPasses(const BenchContext& context, std::span<const Expression> expressions, std::size_t rows) {
  if (!context.onGpu()) {
    double passes = 1;
    while (!srjit::compilingPays(passes, rows) && passes < 1e9) passes *= 1.05;
    return std::ceil(passes);
  }
  const double nodes = nodesOf(expressions);
  const std::size_t kernels = (expressions.size() + kExpressionsPerKernel - 1) / kExpressionsPerKernel;
  const double seconds = compileSeconds(kTypicalCosts, nodes, kernels, std::thread::hardware_concurrency());
  return std::max(1.0, std::ceil(seconds / (kTypicalCosts.interpret * nodes * static_cast<double>(rows))));
}

class BreakEvenMap {
 public:
  BreakEvenMap(const BenchContext& context, std::size_t count)
      : context_(context), engine_(context.engine(Math::kFast)), expressions_(populationOf("mixed", count)) {}

  Json run(const std::vector<std::size_t>& rows) {
    Json points = Json::array();
    std::optional<Program> compiled;
    double compile_ready = 0;
    for (const std::size_t count : rows) {
      if (context_.left() < 0) break;
      const Dataset data = must(engine_.upload(BenchData(kColumns, count).view()));
      const Stopwatch interpreting;
      const Program interpreted = engine_.compile(expressions_, {.tier = Tier::kInterpret});
      const double interpret_ready = interpreting.seconds();
      const double interpret_pass = pass(interpreted, data);
      if (!compiled) {
        const Stopwatch watch;
        compiled = engine_.compile(expressions_, {.tier = Tier::kCompile});
        must(engine_.prepare(*compiled, data, LossOptions{}));
        compile_ready = watch.seconds();
      }
      const double compiled_pass = pass(*compiled, data);
      points.push_back({{"rows", count},
                        {"interpret_ready_seconds", interpret_ready},
                        {"interpret_pass_seconds", interpret_pass},
                        {"compile_ready_seconds", compile_ready},
                        {"compiled_pass_seconds", compiled_pass},
                        {"measured_passes", breakEven(interpret_ready, interpret_pass, compile_ready, compiled_pass)},
                        {"predicted_passes", predictedPasses(context_, expressions_, count)}});
      addFigures(points.back());
    }
    return {{"expressions", expressions_.size()}, {"tokens", nodesOf(expressions_)}, {"points", std::move(points)}};
  }

 private:
  double pass(const Program& program, const Dataset& data) const {
    timeLoss(engine_, program, data, {});
    return medianOf(context_.sample(15, 0.4, [&] { return timeLoss(engine_, program, data, {}).wall; }));
  }

  void addFigures(const Json& point) const {
    const std::string what = fmt::format("{} mixed x {} rows: ", expressions_.size(), point["rows"].get<std::size_t>());
    for (const char* const tier : {"interpret_pass", "compiled_pass"}) {
      context_.report->add(kPart, {what + tier, "ms", {point[std::string(tier) + "_seconds"].get<double>() * 1e3}});
    }
    if (!point["measured_passes"].is_null()) {
      context_.report->add(kPart, {what + "machine code repays, measured",
                                   "passes",
                                   {point["measured_passes"].get<double>()},
                                   {},
                                   fmt::format("predicted: {}", point["predicted_passes"].get<double>())});
    }
  }

  const BenchContext& context_;
  const Engine engine_;
  const std::vector<Expression> expressions_;
};

}  // namespace

void benchTiers(const BenchContext& context) {
  std::vector<std::size_t> rows = {100, 1000, 10000, 100000, 1000000}, counts = {100, 2000};
  if (!context.onGpu()) counts = {100};
  if (context.quick) rows = {100, 10000, 100000}, counts = {32};
  Json maps = Json::array();
  Progress progress(kPart, counts.size(), false);
  for (const std::size_t count : counts) {
    maps.push_back(BreakEvenMap(context, count).run(rows));
    progress.advance();
  }
  context.report->attach(kPart, {{"maps", std::move(maps)}});
}

}  // namespace srjit
