// The published workload of a stack interpreter with cached subtrees: generations of mutated copies of a physical
// formula on a million rows; and how the time scales.
#include <fmt/format.h>

#include "tests/generators/klein_nishina.h"
#include "tools/bench/gpu_context.h"
#include "tools/bench/scenarios/baseline_runs.h"
#include "tools/progress.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMitPart = "mit-generation";
constexpr double kSteadyMilliseconds = 10, kGenerationMilliseconds = 10;  // the targets

BenchData firstRows(const BenchData& all, std::size_t rows) {
  BenchData data;
  for (const auto& column : all.columns) {
    data.columns.emplace_back(column.begin(), column.begin() + static_cast<std::ptrdiff_t>(rows));
  }
  data.target.assign(all.target.begin(), all.target.begin() + static_cast<std::ptrdiff_t>(rows));
  return data;
}

struct Sizes {
  std::size_t expressions, rows, generations, compiled_generations;
  std::vector<std::size_t> expression_curve, row_curve;
};

Sizes sizesOf(const BenchContext& context) {
  if (context.quick) return {100, 20000, 3, 1, {50, 100, 200}, {5000, 20000}};
  const std::size_t rows = context.onGpu() ? 1000000 : 100000;
  return {2000, rows, 30, 4, {50, 200, 500, 1000, 2000, 4000, 8000}, {rows / 25, rows / 10, rows / 4, rows / 2, rows}};
}

/// Milliseconds per generation, preparation included.
struct GenerationTimes {
  std::vector<double> total, ready, losses, kernels;

  void add(double ready_seconds, const Seconds& seconds) {
    total.push_back((ready_seconds + seconds.wall) * 1e3);
    ready.push_back(ready_seconds * 1e3);
    losses.push_back(seconds.wall * 1e3);
    kernels.push_back(seconds.device * 1e3);
  }
  Json json() const {
    return {{"total_ms", total}, {"ready_ms", ready}, {"losses_ms", losses}, {"kernels_ms", kernels}};
  }
};

class MitGeneration {
 public:
  explicit MitGeneration(const BenchContext& context)
      : context_(context),
        sizes_(sizesOf(context)),
        all_(BenchData::ofFormula(sizes_.rows)),
        engine_(context.engine(Math::kFast)),
        tiers_(tiersOf(engine_)),
        data_(must(engine_.upload(all_.view()))),
        what_(fmt::format("{} mutated formulas x {} rows, ", sizes_.expressions, sizes_.rows)) {}

  void run() {
    Generations population(sizes_.expressions);
    must(
        engine_.loss(engine_.compile(std::span(population.current()).first(8), {.tier = Tier::kInterpret}), data_, {}));
    details_["expressions"] = sizes_.expressions;
    details_["rows"] = sizes_.rows;
    details_["tokens"] = nodesOf(population.current());
    const std::vector<Expression> first = population.current();
    details_["generation_tier"] = nameOf(mainTier());
    details_["generations"] = generations(population, mainTier(), "a generation");
    if (mainTier() != Tier::kInterpret) {
      details_["interpreted_generations"] = generations(population, Tier::kInterpret, "a generation, interpreted");
    }
    overlapped(population);
    compiledGenerations(population);
    curves();
    // Saved before the designs run, since one of them may crash the device.
    context_.report->attach(kMitPart, details_);
    details_["baselines"] =
        runBaselines(context_, {kMitPart, what_ + "one generation", all_, first, 1, 0}, 0.6 * context_.left());
    context_.report->attach(kMitPart, details_);
    if (context_.baselines) baselineCurves();
    context_.report->attach(kMitPart, std::move(details_));
  }

 private:
  /// The fastest tier for expressions that are evaluated once.
  Tier mainTier() const { return tiers_.size() > 2 ? Tier::kDirect : Tier::kInterpret; }

  Program madeReady(std::span<const Expression> expressions, Tier tier) const {
    Program program = engine_.compile(expressions, {.tier = tier, .expected_rows = data_.rows()});
    if (tier != Tier::kInterpret) must(engine_.prepare(program, data_, LossOptions{}));
    return program;
  }

  GenerationTimes generation(const std::vector<Expression>& expressions, Tier tier, GenerationTimes series) {
    const Stopwatch watch;
    const Program program = madeReady(expressions, tier);
    const double ready = watch.seconds();
    series.add(ready, timeLoss(engine_, program, data_, {}));
    return series;
  }

  void addSeries(const std::string& what, const GenerationTimes& series, std::optional<Target> target = {}) {
    context_.report->add(kMitPart, {what_ + what + ": expressions to losses", "ms", series.total, target});
    context_.report->add(kMitPart, {what_ + what + ": of that, making ready", "ms", series.ready});
    context_.report->add(kMitPart, {what_ + what + ": of that, kernels", "ms", series.kernels});
  }

  Json generations(Generations& population, Tier tier, const std::string& what) {
    GenerationTimes series;
    const double tokens = nodesOf(population.current());
    Progress progress(kMitPart, sizes_.generations, false);
    for (std::size_t i = 0; i < sizes_.generations; ++i, population.next()) {
      series = generation(population.current(), tier, std::move(series));
      progress.advance();
    }
    const bool has_target = tier == Tier::kDirect && !context_.quick;
    addSeries(what, series, has_target ? std::optional(atMost(kGenerationMilliseconds)) : std::nullopt);
    const double evaluations = tokens * static_cast<double>(sizes_.rows) * 1e-12;
    std::vector<double> rates;
    for (const double ms : series.kernels) rates.push_back(evaluations / (ms * 1e-3));
    context_.report->add(kMitPart, {what_ + what + ": rate of the kernels", "T nodes/s", rates});
    return series.json();
  }

  // Prepares the next generation while this one is evaluated.
  void overlapped(Generations& population) {
    std::vector<double> each;
    std::optional<Program> program = madeReady(population.current(), mainTier());
    for (std::size_t i = 0; i < sizes_.generations; ++i) {
      population.next();
      const Stopwatch watch;
      auto flight = must(engine_.submitLoss(*program, data_, {}));
      program = madeReady(population.current(), mainTier());
      must(std::move(flight).result());
      each.push_back(watch.seconds() * 1e3);
    }
    context_.report->add(kMitPart, {what_ + "a generation, the next one made ready beside it", "ms", each});
    details_["overlapped_ms"] = each;
  }

  // Machine code for every generation, and the steady state of one whose code is ready.
  void compiledGenerations(Generations& population) {
    if (!context_.mayBegin(kMitPart, "machine code, steady states")) return;
    GenerationTimes series;
    for (std::size_t i = 0; i < sizes_.compiled_generations && (i == 0 || context_.left() > 0);
         ++i, population.next()) {
      series = generation(population.current(), Tier::kCompile, std::move(series));
    }
    addSeries("a generation, machine code made for it", series);
    details_["compiled_generations"] = series.json();
    details_["steady"] = steady(population.current(), Tier::kCompile);
    if (mainTier() == Tier::kDirect) details_["direct_steady"] = steady(population.current(), Tier::kDirect);
  }

  Json steady(std::span<const Expression> expressions, Tier tier) const {
    std::vector<double> wall, kernels;
    const Program program = madeReady(expressions, tier);
    timeLoss(engine_, program, data_, {});
    context_.sample(31, 1, [&] {
      const Seconds seconds = timeLoss(engine_, program, data_, {});
      wall.push_back(seconds.wall * 1e3);
      kernels.push_back(seconds.device * 1e3);
      return seconds.wall;
    });
    const std::string what = fmt::format("{}steady state of {}: ", what_, titleOf(tier));
    Figure figure{what + "parameters to losses", "ms", wall};
    if (context_.onGpu() && !context_.quick) figure.target = atMost(kSteadyMilliseconds);
    figure.note =
        fmt::format("{} tokens, {} nodes after the passes", program.info().nodes_before, program.info().nodes_after);
    context_.report->add(kMitPart, std::move(figure));
    context_.report->add(kMitPart, {what + "kernels", "ms", kernels});
    return {{"total_ms", wall}, {"kernels_ms", kernels}};
  }

  /// A point of a curve: all tiers. Includes preparation times only if the expressions are new to the engine.
  Json point(std::span<const Expression> expressions, const Dataset& data, bool are_new) {
    Json row = {{"expressions", expressions.size()}, {"rows", data.rows()}, {"tokens", nodesOf(expressions)}};
    for (const Tier tier : tiers_) {
      const Stopwatch watch;
      const Program program = engine_.compile(expressions, {.tier = tier});
      must(engine_.prepare(program, data, LossOptions{}));
      const double ready = watch.seconds();
      timeLoss(engine_, program, data, {});
      std::vector<double> wall, kernels;
      context_.sample(9, 0.3, [&] {
        const Seconds seconds = timeLoss(engine_, program, data, {});
        wall.push_back(seconds.wall);
        kernels.push_back(seconds.device);
        return seconds.wall;
      });
      row[nameOf(tier)] = {{"loss_seconds", medianOf(wall)},
                           {"quartiles", {quantileOf(wall, 0.25), quantileOf(wall, 0.75)}},
                           {"kernel_seconds", medianOf(kernels)}};
      if (are_new) row[nameOf(tier)]["ready_seconds"] = ready;
    }
    return row;
  }

  void curves() {
    const Generations population(sizes_.expression_curve.back(), 2);
    const std::span<const Expression> expressions(population.current());
    Json over_expressions = Json::array(), over_rows = Json::array();
    Progress progress("mit-generation, curves", sizes_.expression_curve.size() + sizes_.row_curve.size(), false);
    for (const std::size_t count : sizes_.expression_curve) {
      if (!context_.mayBegin(kMitPart, fmt::format("curve, {} expressions", count))) continue;
      over_expressions.push_back(point(expressions.first(count), data_, true));
      progress.advance();
    }
    for (const std::size_t rows : sizes_.row_curve) {
      if (!context_.mayBegin(kMitPart, fmt::format("curve, {} rows", rows))) continue;
      const Dataset data = must(engine_.upload(firstRows(all_, rows).view()));
      over_rows.push_back(point(expressions.first(sizes_.expressions), data, false));
      progress.advance();
    }
    details_["over_expressions"] = std::move(over_expressions);
    details_["over_rows"] = std::move(over_rows);
  }

  // Designs over the numbers of expressions and of rows. Designs with fast preparation are measured and checked; times
  // of the others are scaled from the largest size.
  void baselineCurves() {
    const Generations population(sizes_.expression_curve.back(), 2);
    const std::span<const Expression> expressions(population.current());
    Json over_expressions = Json::array(), over_rows = Json::array();
    Progress progress("mit-generation, curves of designs", allBaselines().size(), false);
    std::optional<OwnSums> own;
    for (const BaselineInfo& info : allBaselines()) {
      const Status done = caught([&] {
        if (!isQuick(info)) return;
        if (!own) own.emplace(all_.view());
        BaselineTimer timer(context_, info, all_);
        for (const std::size_t count : sizes_.expression_curve) {
          if (!context_.mayBegin(kMitPart, fmt::format("{}, curve, {} expressions", info.name, count))) continue;
          over_expressions.push_back(baselinePoint(info, timer, expressions.first(count), *own));
        }
        for (const std::size_t rows : sizes_.row_curve) {
          if (!context_.mayBegin(kMitPart, fmt::format("{}, curve, {} rows", info.name, rows))) continue;
          const BenchData some = firstRows(all_, rows);
          BaselineTimer fewer(context_, info, some);
          over_rows.push_back(baselinePoint(info, fewer, expressions.first(sizes_.expressions), OwnSums(some.view())));
        }
      });
      if (!done) context_.report->addFault(kMitPart, fmt::format("{}, curves: {}", info.name, done.error().message));
      progress.advance();
    }
    for (const Json& row : details_["baselines"]) {
      if (!row.contains("total_seconds") || !row["extrapolated"].get<bool>()) continue;
      for (Json* const curve : {&over_expressions, &over_rows}) {
        curve->push_back({{"name", row["name"]},
                          {"expressions", sizes_.expressions},
                          {"rows", sizes_.rows},
                          {"loss_seconds", row["step_seconds"]},
                          {"extrapolated", true}});
      }
    }
    details_["baselines_over_expressions"] = std::move(over_expressions);
    details_["baselines_over_rows"] = std::move(over_rows);
  }

  Json baselinePoint(const BaselineInfo& info, BaselineTimer& timer, std::span<const Expression> expressions,
                     const OwnSums& own) const {
    const double ready = timer.prepare(expressions);
    timer.step(false);
    const SumAgreement agreement = own.compareWith(timer);
    std::vector<double> times;
    for (int i = 0; i < 3; ++i) times.push_back(timer.step(false));
    return {
        {"name", info.name},          {"expressions", expressions.size()},   {"rows", timer.data().target.size()},
        {"ready_seconds", ready},     {"loss_seconds", medianOf(times)},     {"kernel_seconds", timer.kernelSeconds()},
        {"extrapolated", false},      {"sums_compared", agreement.compared}, {"sums_finite", agreement.finite},
        {"sums_same", agreement.same}};
  }

  bool isQuick(const BaselineInfo& info) const {
    for (const Json& row : details_["baselines"]) {
      if (row["name"] == info.name && row.contains("total_seconds")) {
        return !row["extrapolated"].get<bool>() && row["total_seconds"].get<double>() < 1;
      }
    }
    return false;
  }

  const BenchContext& context_;
  const Sizes sizes_;
  const BenchData all_;
  const Engine engine_;
  const std::vector<Tier> tiers_;
  const Dataset data_;
  const std::string what_;
  Json details_;
};

}  // namespace

void benchMitGeneration(const BenchContext& context) {
  BenchContext losses = context;
  losses.predictions = false;
  losses.losses = true;
  MitGeneration(losses).run();
}

}  // namespace srjit
