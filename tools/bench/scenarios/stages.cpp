// Time to prepare expressions, by stage and by size: on one core and on all, from nothing and from the kernel cache.
#include <algorithm>

#include <fmt/format.h>

#include "tools/bench/work.h"

namespace srjit {
namespace {

struct StageSize {
  int nodes;
  std::size_t expressions;
};

std::vector<Expression> ofSize(const StageSize& size) {
  GeneratorOptions options = *findPopulation("mixed");
  options.min_nodes = options.max_nodes = size.nodes;
  return ExpressionGenerator(options).batch(size.expressions);
}

/// Adds the stages of one preparation, in seconds per expression.
void addStages(const Bench& bench, const Subject& subject, const Engine& engine,
               std::span<const Expression> expressions, Tier tier) {
  const Dataset data = must(engine.upload(randomData(kTreeColumns, 4096).view()));
  const std::string text = textOf(expressions, Language::kPostfix);
  const auto count = static_cast<double>(expressions.size());
  const double compiled_before = engine.cacheStats().compile_seconds;
  const Stopwatch watch;
  const std::vector<Expression> parsed = parseLines(text, Language::kPostfix);
  const double parsing = watch.seconds();
  const auto [program, ready] = makeReady(engine, parsed, data, {.tier = tier});
  const ProgramStatus status = program.status();
  const CacheStats stats = engine.cacheStats();
  const auto add = [&](const char* stage, double seconds) {
    bench.add(inTier(subject, tier).with("", {{"stage", stage}}), stage, "us/expression", {seconds / count});
  };
  add("to loaded code", ready);
  add("parsing", parsing);
  add("passes", program.info().seconds_passes);
  add("encoding", program.info().seconds_codegen);
  if (tier == Tier::kInterpret) return;
  add("LLVM and assembler, core time", stats.compile_seconds - compiled_before);
  add("direct code, or waiting for kernels", status.seconds_compiling);
  add("finding and reading", status.seconds_reading);
  add("loading by the driver", status.seconds_loading);
  add("first losses after that", timeLoss(engine, program, data, {}).wall);
}

/// Each tier of a device without cached kernels, on one core and on all; and machine code by a second engine, which
/// finds it on disk as a second process does.
void benchSize(const Bench& bench, const StageSize& size, EngineOptions options) {
  for (const unsigned threads : {1U, 0U}) {
    // LLVM takes tens of milliseconds per expression and core.
    const std::size_t count = threads == 1 ? std::max<std::size_t>(1, size.expressions / 16) : size.expressions;
    const std::vector<Expression> expressions = ofSize({size.nodes, count});
    options.threads = threads;
    options.cache_directory = bench.cacheDirectory(fmt::format("{} {} {}", options.device, size.nodes, threads));
    const Subject subject = {
        fmt::format("{} expressions of {} nodes, {}, {}", count, size.nodes, options.device,
                    threads == 1 ? "one core" : "all cores"),
        {{"nodes", size.nodes}, {"device", options.device}, {"cores", threads == 1 ? "one" : "all"}}};
    const Engine engine = must(Engine::create(options));
    for (const Tier tier : tiersOf(engine)) {
      if (bench.mayBegin(inTier(subject, tier).words)) addStages(bench, subject, engine, expressions, tier);
    }
    if (threads == 1) continue;
    const Subject again = subject.with("a second engine, from disk", {{"from", "disk"}});
    addStages(bench, again, must(Engine::create(options)), expressions, Tier::kCompile);
  }
}

}  // namespace

void benchStages(const Bench& bench) {
  const std::vector<StageSize> sizes =
      bench.quick ? std::vector<StageSize>{{10, 32}, {30, 16}, {100, 4}}
                  : std::vector<StageSize>{{10, 2048}, {30, 4096}, {100, 320}, {300, 96}, {1000, 32}};
  for (const StageSize& size : sizes) {
    benchSize(bench, size, bench.options());
    EngineOptions processor = bench.options();
    processor.device = "cpu";
    if (bench.onGpu()) benchSize(bench, size, processor);
  }
}

}  // namespace srjit
