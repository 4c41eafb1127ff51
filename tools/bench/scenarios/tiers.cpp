// Break-even numbers of rows and evaluations for direct code and LLVM's machine code, from seconds per evaluation and
// of preparation. The scenario "auto" shows how well the engine predicts them.
#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "tools/bench/work.h"

namespace srjit {
namespace {

/// The expressions of a map.
struct MapShape {
  const char* population;
  Precision precision;
  std::size_t expressions;
};

/// Times of a tier.
struct TierSeconds {
  double ready = 0, evaluation = 0;
};

class BreakEvenMap {
 public:
  BreakEvenMap(const Bench& bench, const MapShape& shape)
      : bench_(bench),
        shape_(shape),
        engine_(engineOf(bench.options(), shape.precision)),
        tiers_(tiersOf(engine_)),
        processor_(engineOf({.device = "cpu", .math = Math::kFast, .cache_directory = ""}, shape.precision)),
        expressions_(populationOf(shape.population, shape.expressions)) {}

  void run(std::span<const std::size_t> all_rows) {
    for (const std::size_t rows : all_rows) {
      const Subject subject =
          subjectOf(shape_.expressions, fmt::format("{} {}", shape_.population, nameOf(shape_.precision)), rows);
      if (bench_.mayBegin(subject.words)) runRows(subject, rows);
    }
  }

 private:
  static Engine engineOf(EngineOptions options, Precision precision) {
    options.precision = precision;
    return must(Engine::create(options));
  }

  void runRows(const Subject& subject, std::size_t rows) {
    const BenchData columns = randomData(kTreeColumns, rows);
    const Dataset data = must(engine_.upload(columns.view()));
    TierSeconds serving;
    for (const Tier tier : tiers_) {
      const TierSeconds seconds = measure(inTier(subject, tier), engine_, tier, data);
      // LLVM's code is compared with the tier that serves before it: direct code if available.
      const double gain = serving.evaluation - seconds.evaluation;
      if (gain > 0) {
        bench_.add(inTier(subject, tier), "repays", "evaluations",
                   {std::max(1.0, std::ceil((seconds.ready - serving.ready) / gain))});
      }
      serving = seconds;
    }
    if (!bench_.onGpu()) return;
    measure(subject.with("the processor's interpreter", {{"tier", "cpu"}}), processor_, Tier::kInterpret,
            must(processor_.upload(columns.view())));
  }

  /// LLVM's code of the expressions is made once.
  TierSeconds measure(const Subject& subject, const Engine& engine, Tier tier, const Dataset& data) {
    const bool is_made = tier == Tier::kCompile && compiled_;
    Ready made = is_made ? *compiled_ : makeReady(engine, expressions_, data, {.tier = tier});
    const TierSeconds seconds{made.seconds, medianOf(timeSeries(bench_, engine, made.program, data, 15, 0.4).wall)};
    if (tier == Tier::kCompile) compiled_ = std::move(made);
    bench_.add(subject, "making ready", "ms", {seconds.ready});
    bench_.add(subject, "an evaluation", "ms", {seconds.evaluation});
    return seconds;
  }

  const Bench& bench_;
  const MapShape shape_;
  const Engine engine_;
  const std::vector<Tier> tiers_;
  const Engine processor_;
  const std::vector<Expression> expressions_;
  std::optional<Ready> compiled_;
};

}  // namespace

void benchTiers(const Bench& bench) {
  const std::size_t few = bench.quick ? 4 : 100, many = bench.onGpu() && !bench.quick ? 2000 : few;
  std::vector<MapShape> shapes = {{"mixed", Precision::kF32, bench.quick ? 32 : few},
                                  {"arithmetic", Precision::kF32, many},
                                  {"arithmetic", Precision::kF64, many},
                                  {"formula", Precision::kF32, many},
                                  {"mixed", Precision::kF64, few}};
  if (many != few) shapes.insert(shapes.begin() + 1, {"mixed", Precision::kF32, many});
  const std::vector<std::size_t> all_rows = bench.quick
                                                ? std::vector<std::size_t>{1000, 100'000}
                                                : std::vector<std::size_t>{100, 1000, 10'000, 100'000, 1'000'000};
  for (const MapShape& shape : shapes) BreakEvenMap(bench, shape).run(all_rows);
}

}  // namespace srjit
