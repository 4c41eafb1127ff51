// The published workload of a stack interpreter with cached subtrees: generations of mutated copies of a physical
// formula on a million rows.
#include <fmt/format.h>

#include "tests/generators/klein_nishina.h"
#include "tools/bench/work.h"

namespace srjit {
namespace {

struct MitSizes {
  std::size_t expressions, rows, generations, compiled_generations;
};

class MitGeneration {
 public:
  explicit MitGeneration(const Bench& bench)
      : bench_(bench),
        sizes_(bench.quick ? MitSizes{100, 20'000, 3, 1}
                           : MitSizes{2000, bench.onGpu() ? std::size_t{1'000'000} : 100'000, 30, 4}),
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
    if (bench_.mayBegin("machine code, steady states")) {
      generations(population, Tier::kCompile, sizes_.compiled_generations);
      for (const Tier tier : tiers_) {
        if (tier != Tier::kInterpret) steady(population.current(), tier);
      }
    }
    runDesigns(bench_, {subject_.with("one generation"), all_, first}, 0.6 * bench_.left());
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
