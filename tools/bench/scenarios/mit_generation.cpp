// The published workload of a stack interpreter with cached subtrees: generations of mutated copies of a physical
// formula on a million rows; and how the time scales.
#include <fmt/format.h>

#include "tests/generators/klein_nishina.h"
#include "tools/bench/runs.h"

namespace srjit {
namespace {

struct MitSizes {
  std::size_t expressions, rows, generations, compiled_generations;
  std::vector<std::size_t> expression_curve, row_curve;
};

MitSizes sizesOf(const Bench& bench) {
  if (bench.quick) return {100, 20000, 3, 1, {50, 100, 200}, {5000, 20000}};
  const std::size_t rows = bench.onGpu() ? 1000000 : 100000;
  return {2000, rows, 30, 4, {50, 200, 500, 1000, 2000, 4000, 8000}, {rows / 25, rows / 10, rows / 4, rows / 2, rows}};
}

class MitGeneration {
 public:
  explicit MitGeneration(const Bench& bench)
      : bench_(bench),
        sizes_(sizesOf(bench)),
        all_(formulaData(sizes_.rows)),
        engine_(bench.engine()),
        tiers_(tiersOf(engine_)),
        // The fastest tier for expressions that are evaluated once.
        main_(tiers_.size() > 2 ? Tier::kDirect : Tier::kInterpret),
        data_(must(engine_.upload(all_.view()))),
        subject_(subjectOf(sizes_.expressions, "mutated formulas", sizes_.rows)) {}

  void run() {
    Generations population(sizes_.expressions);
    const std::vector<Expression> first = population.current();
    timeLoss(engine_, engine_.compile(std::span(first).first(8), {.tier = Tier::kInterpret}), data_, {});
    generations(population, main_, sizes_.generations);
    if (main_ != Tier::kInterpret) generations(population, Tier::kInterpret, sizes_.generations);
    overlapped(population);
    if (bench_.mayBegin("machine code, steady states")) {
      generations(population, Tier::kCompile, sizes_.compiled_generations);
      for (const Tier tier : tiers_) {
        if (tier != Tier::kInterpret) steady(population.current(), tier);
      }
    }
    const std::vector<Expression> expressions = populationOf("formula", sizes_.expression_curve.back(), 2);
    curves(expressions);
    const auto fast = runDesigns(bench_, {subject_.with("one generation"), all_, first}, 0.6 * bench_.left());
    for (const BaselineInfo& info : fast) designCurves(info, expressions);
  }

 private:
  Ready ready(std::span<const Expression> expressions, Tier tier) const {
    return makeReady(engine_, expressions, data_, {.tier = tier, .expected_rows = data_.rows()});
  }

  void generations(Generations& population, Tier tier, std::size_t count) {
    std::vector<double> total, making;
    Series series;
    const double tokens = nodesOf(population.current());
    for (std::size_t i = 0; i < count && (i == 0 || bench_.left() > 0); ++i, population.next()) {
      const auto [program, seconds] = ready(population.current(), tier);
      making.push_back(seconds);
      series.add(timeLoss(engine_, program, data_, {}));
      total.push_back(seconds + series.wall.back());
    }
    const Subject subject = inTier(subject_.with("a generation"), tier);
    bench_.add(subject, "expressions to losses", "ms", total);
    bench_.add(subject, "of that, making ready", "ms", making);
    bench_.add(subject, "of that, kernels", "ms", series.device);
    bench_.add(subject, "rate of the kernels", "T nodes/s", series.rates(tokens * static_cast<double>(sizes_.rows)));
  }

  // Prepares the next generation while this one is evaluated.
  void overlapped(Generations& population) {
    std::vector<double> each;
    Program program = ready(population.current(), main_).program;
    for (std::size_t i = 0; i < sizes_.generations; ++i) {
      population.next();
      const Stopwatch watch;
      auto flight = must(engine_.submitLoss(program, data_, {}));
      program = ready(population.current(), main_).program;
      must(std::move(flight).result());
      each.push_back(watch.seconds());
    }
    bench_.add(inTier(subject_.with("a generation"), main_), "the next one made ready beside it", "ms", each);
  }

  // Expressions whose code is ready.
  void steady(std::span<const Expression> expressions, Tier tier) const {
    const Program program = ready(expressions, tier).program;
    const Series series = timeSeries(bench_, engine_, program, data_, 31, 1);
    const Subject subject = inTier(subject_.with("steady state"), tier);
    bench_.add(
        subject, "parameters to losses", "ms", series.wall,
        fmt::format("{} tokens, {} nodes after the passes", program.info().nodes_before, program.info().nodes_after));
    bench_.add(subject, "kernels", "ms", series.device);
  }

  static Subject curve(const char* over, std::size_t expressions, std::size_t rows) {
    return subjectOf(expressions, "mutated formulas", rows).with(fmt::format("over {}", over), {{"over", over}});
  }

  /// All tiers. Preparation counts only if the expressions are new to the engine.
  void point(const Subject& subject, std::span<const Expression> expressions, const Dataset& data, bool are_new) {
    for (const Tier tier : tiers_) {
      const auto [program, seconds] = makeReady(engine_, expressions, data, {.tier = tier});
      const Series series = timeSeries(bench_, engine_, program, data, 9, 0.3);
      bench_.add(inTier(subject, tier), "parameters to losses", "ms", series.wall);
      if (are_new) bench_.add(inTier(subject, tier), "making ready", "ms", {seconds});
    }
  }

  void curves(std::span<const Expression> expressions) {
    for (const std::size_t count : sizes_.expression_curve) {
      if (!bench_.mayBegin(fmt::format("curve, {} expressions", count))) continue;
      point(curve("expressions", count, sizes_.rows), expressions.first(count), data_, true);
    }
    for (const std::size_t rows : sizes_.row_curve) {
      if (!bench_.mayBegin(fmt::format("curve, {} rows", rows))) continue;
      const Dataset data = must(engine_.upload(firstRows(all_, rows).view()));
      point(curve("rows", sizes_.expressions, rows), expressions.first(sizes_.expressions), data, false);
    }
  }

  void designCurves(const BaselineInfo& info, std::span<const Expression> expressions) {
    const auto point = [&](const char* over, std::size_t count, std::size_t rows) {
      const Subject subject = curve(over, count, rows).with(info.name, {{"design", info.name}});
      if (!bench_.mayBegin(subject.words)) return;
      const BenchData some = firstRows(all_, rows);
      DesignTimer timer(bench_, info, some);
      const double ready = timer.prepare(expressions.first(count));
      timer.step(false);
      const std::string note = timer.compareSums().text();
      std::vector<double> times;
      for (int i = 0; i < 3; ++i) times.push_back(timer.step(false).wall);
      bench_.add(subject, "parameters to losses", "ms", times, note);
      bench_.add(subject, "making ready", "ms", {ready});
    };
    const Status done = caught([&] {
      for (const std::size_t count : sizes_.expression_curve) point("expressions", count, sizes_.rows);
      for (const std::size_t rows : sizes_.row_curve) point("rows", sizes_.expressions, rows);
    });
    if (!done) bench_.report->addFault(bench_.scenario, fmt::format("{}, curves: {}", info.name, done.error().message));
  }

  const Bench& bench_;
  const MitSizes sizes_;
  const BenchData all_;
  const Engine engine_;
  const std::vector<Tier> tiers_;
  const Tier main_;
  const Dataset data_;
  const Subject subject_;
};

}  // namespace

void benchMitGeneration(const Bench& bench) {
  Bench losses = bench;
  losses.predictions = false;
  losses.losses = true;
  MitGeneration(losses).run();
}

}  // namespace srjit
