// Part about the direct tier: time to generate code, its rate, and the break-even against interpretation.
#include <fmt/format.h>

#include "tools/bench/gpu_context.h"

namespace srjit {
namespace {

/// Seconds from graphs to loaded kernels of a population that is not in any cache.
double writingSeconds(const Engine& engine, std::span<const Expression> expressions, const Dataset& data) {
  const Program program = engine.compile(expressions, {.tier = Tier::kDirect});
  must(engine.prepare(program, data, LossOptions{}));
  const ProgramStatus status = program.status();
  if (status.tier != Tier::kDirect) {
    throw BenchFailure{status.error.value_or(Error{Errc::kMachine, "no direct code was made", {}})};
  }
  return status.seconds_compiling;
}

void benchWriting(const BenchContext& context) {
  const std::size_t count = context.quick ? 1000 : 10000;
  const BenchData data(kBenchColumns, 1000);
  for (const char* const population : {"mixed", "arithmetic"}) {
    const std::vector<Expression> expressions = populationOf(population, count);
    for (const unsigned threads : {1U, 0U}) {
      const Engine engine = must(Engine::create({.device = context.device,
                                                 .math = Math::kFast,
                                                 .threads = threads,
                                                 .cache_directory = context.cacheDirectory()}));
      const Dataset uploaded = must(engine.upload(data.view()));
      writingSeconds(engine, expressions, uploaded);
      const auto samples = context.sample(9, 3, [&] {
        return writingSeconds(engine, expressions, uploaded) * kMicrosPerSecond / static_cast<double>(count);
      });
      context.report->add("direct", {fmt::format("direct, {} {}, graphs to loaded kernels, {} thread{}", count,
                                                 population, engine.options().threads, threads == 1 ? "" : "s"),
                                     "us/expression", samples, atMost(threads == 1 ? 3 : 0.4)});
    }
  }
}

void benchTextToLosses(const BenchContext& context) {
  const std::size_t count = context.quick ? 1000 : 10000, rows = 10860;
  const Engine engine = context.engine(Math::kFast);
  const BenchData data(kBenchColumns, rows);
  const Dataset uploaded = must(engine.upload(data.view()));
  const std::string text = textOf(populationOf("mixed", count), Language::kPostfix);
  std::vector<double> all;
  for (const Tier tier : {Tier::kDirect, Tier::kInterpret}) {
    const auto once = [&] {
      const Stopwatch watch;
      const std::vector<Expression> expressions = parseLines(text, Language::kPostfix);
      const Program program = engine.compile(expressions, {.tier = tier});
      must(engine.loss(program, uploaded, {}));
      return watch.seconds() * kMillisPerSecond;
    };
    once();
    Figure figure{fmt::format("text of {} mixed to first losses on {} rows, {}", count, rows,
                              tier == Tier::kDirect ? "direct" : "interpreted"),
                  "ms", context.sample(9, 3, once)};
    if (tier == Tier::kDirect) figure.target = atMost(20);
    context.report->add("direct", std::move(figure));
  }
}

/// Rates of all tiers on one batch.
void benchRates(const BenchContext& context, std::size_t count, std::size_t rows, bool predictions, Math math) {
  const Engine engine = context.engine(math);
  const BenchData data(kBenchColumns, rows);
  const Dataset uploaded = must(engine.upload(data.view()));
  std::vector<float> out(predictions ? count * rows : 0);
  for (const char* const population : {"mixed", "arithmetic"}) {
    const std::vector<Expression> expressions = populationOf(population, count);
    for (const auto& [tier, name] :
         {std::pair(Tier::kDirect, "direct"), {Tier::kCompile, "compiled"}, {Tier::kInterpret, "interpreted"}}) {
      if (tier == Tier::kCompile && count > 2000) continue;
      const Program program = engine.compile(expressions, {.tier = tier});
      Figure figure{fmt::format("{}, f32 {}, {} x {} {}, {}", name, nameOf(math), count, rows, population,
                                predictions ? "predictions" : "losses"),
                    "T nodes/s", kernelRates(context, engine, program, uploaded, nodesOf(expressions), 9, 2, out)};
      const bool mixed = population[0] == 'm';
      if (tier == Tier::kDirect && count <= 2000) figure.target = atLeast(mixed ? 15 : 22);
      if (tier == Tier::kDirect && count > 2000) figure.target = atLeast(!mixed ? 16 : math == Math::kFast ? 10 : 7);
      context.report->add("direct", std::move(figure));
    }
  }
}

/// Evaluations after which direct code, generated on one core, takes less total time than the interpreter.
void benchBreakEven(const BenchContext& context) {
  const std::size_t count = context.quick ? 500 : 2000, rows = 10860;
  const Engine engine = must(Engine::create(
      {.device = context.device, .math = Math::kFast, .threads = 1, .cache_directory = context.cacheDirectory()}));
  const BenchData data(kBenchColumns, rows);
  const Dataset uploaded = must(engine.upload(data.view()));
  const std::vector<Expression> expressions = populationOf("mixed", count);
  std::array<double, 2> evaluation{};
  for (const Tier tier : {Tier::kDirect, Tier::kInterpret}) {
    const Program program = engine.compile(expressions, {.tier = tier});
    timeLoss(engine, program, uploaded, {});
    evaluation[tier == Tier::kDirect ? 0 : 1] =
        medianOf(context.sample(15, 1, [&] { return timeLoss(engine, program, uploaded, {}).device; }));
  }
  const auto samples = context.sample(5, 2, [&] {
    return writingSeconds(engine, expressions, uploaded) / std::max(evaluation[1] - evaluation[0], 1e-12);
  });
  context.report->add(
      "direct", {fmt::format("direct against interpreting, {} mixed x {} rows, one core: break-even", count, rows),
                 "evaluations", samples, atMost(100)});
}

}  // namespace

void benchDirect(const BenchContext& context) {
  benchWriting(context);
  benchTextToLosses(context);
  benchRates(context, context.quick ? 64 : 256, context.quick ? 100'000 : 1'000'000, true, Math::kFast);
  benchRates(context, context.quick ? 64 : 256, context.quick ? 100'000 : 1'000'000, false, Math::kFast);
  for (const Math math : {Math::kFast, Math::kPrecise}) {
    benchRates(context, context.quick ? 2001 : 10000, 10860, false, math);
  }
  benchBreakEven(context);
}

}  // namespace srjit
