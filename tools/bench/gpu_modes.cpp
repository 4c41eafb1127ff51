// Part about precisions and modes: rates of losses of random trees and of mutated copies of a formula.
#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "tests/generators/klein_nishina.h"
#include "tools/bench/gpu_context.h"

namespace srjit {
namespace {

struct Mode {
  Precision precision;
  Math math;
  bool operator==(const Mode&) const = default;
};
constexpr Mode kFast32 = {Precision::kF32, Math::kFast}, kPrecise32 = {Precision::kF32, Math::kPrecise},
               kFast64 = {Precision::kF64, Math::kFast}, kPrecise64 = {Precision::kF64, Math::kPrecise};

struct RateTarget {
  std::string_view population;
  Mode mode;
  Tier tier;
  bool on_gpu;
  double rate;  ///< T node evaluations per second
};
constexpr std::string_view kModeMixed = "mixed", kModeFormula = "mutated formulas";
constexpr RateTarget kRateTargets[] = {
    {kModeMixed, kPrecise32, Tier::kInterpret, true, 4}, {kModeMixed, kPrecise32, Tier::kDirect, true, 7},
    {kModeMixed, kFast64, Tier::kDirect, true, 2.5},     {kModeMixed, kPrecise64, Tier::kDirect, true, 2},
    {kModeFormula, kPrecise32, Tier::kDirect, true, 15}, {kModeFormula, kPrecise64, Tier::kDirect, true, 5},
    {kModeMixed, kFast32, Tier::kInterpret, false, 0.3}, {kModeMixed, kPrecise32, Tier::kInterpret, false, 0.2},
};

struct ModeWork {
  std::string_view population;
  std::vector<Expression> expressions;
  BenchData data;
};

ModeWork mixedWork(const BenchContext& context) {
  return {kModeMixed, populationOf("mixed", context.quick ? 1000 : kPopulation),
          BenchData(kBenchColumns, kPopulationRows)};
}

ModeWork formulaWork(const BenchContext& context) {
  const std::size_t rows = context.quick ? 20'000 : context.onGpu() ? 1'000'000 : 100'000;
  return {kModeFormula, Generations(context.quick ? 100 : 2000).current(), BenchData::ofFormula(rows)};
}

/// The tiers of `wanted` that the context's device has.
void measureMode(const BenchContext& context, const ModeWork& work, Mode mode, std::span<const Tier> wanted) {
  const Engine engine = context.engine(mode.math, "cache", mode.precision);
  const std::string what = fmt::format(
      "{}{} {}, {} x {} {}, losses, ",
      context.onGpu() ? "" : fmt::format("processor, {} threads, ", engine.options().threads), nameOf(mode.precision),
      nameOf(mode.math), work.expressions.size(), work.data.rows(), work.population);
  if (!context.mayBegin("modes", what + nameOf(wanted.front()))) return;
  const Dataset uploaded = must(engine.upload(work.data.view()));
  for (const Tier tier : tiersOf(engine)) {
    if (std::ranges::find(wanted, tier) == wanted.end()) continue;
    const Program program = engine.compile(work.expressions, {.tier = tier});
    Figure figure{what + titleOf(tier), "T nodes/s",
                  kernelRates(context, engine, program, uploaded, nodesOf(work.expressions), 15, 0.5)};
    for (const RateTarget& target : kRateTargets) {
      const bool is_same = target.population == work.population && target.mode == mode && target.tier == tier;
      if (is_same && target.on_gpu == context.onGpu() && !context.quick) figure.target = atLeast(target.rate);
    }
    const ServedExpressions served = program.status().served;
    if (tier == Tier::kDirect && served.direct < program.size()) {
      figure.note = fmt::format("{} of {} expressions have direct code", served.direct, program.size());
    }
    context.report->add("modes", std::move(figure));
  }
}

}  // namespace

void benchModes(const BenchContext& context) {
  constexpr Tier kWithoutLlvm[] = {Tier::kInterpret, Tier::kDirect}, kWithLlvm[] = {Tier::kCompile};
  const ModeWork mixed = mixedWork(context), formula = formulaWork(context);
  BenchContext processor = context;
  processor.device = "cpu";
  for (const Mode mode : {kFast32, kPrecise32}) measureMode(processor, mixed, mode, kWithoutLlvm);
  for (const Mode mode : {kFast32, kPrecise32, kFast64, kPrecise64}) {
    // On a processor this is measured already.
    if (context.onGpu() || mode.precision == Precision::kF64) measureMode(context, mixed, mode, kWithoutLlvm);
    measureMode(context, formula, mode, kWithoutLlvm);
  }
  // LLVM's code takes the longest to make.
  for (const Mode mode : {kFast32, kPrecise32}) measureMode(context, formula, mode, kWithLlvm);
}

}  // namespace srjit
