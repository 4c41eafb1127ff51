// Parts about the interpreter: rates against the textbook kernel, small expressions, text to programs.
#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "ir/text.h"
#include "tools/bench/baselines/check.h"
#include "tools/bench/gpu_context.h"
#include "tools/bench/scenarios/baseline_timer.h"

namespace srjit {
namespace {

constexpr std::size_t kSmallExpressions = 250000, kSmallRows = 362;

/// The median, in T node evaluations per second.
double measureBaseline(const BenchContext& context, const std::string& population,
                       std::span<const Expression> expressions, const BenchData& data) {
  const double evaluations = nodesOf(expressions) * static_cast<double>(data.rows());
  const auto ratesOf = [&](std::string_view name, std::size_t samples, std::string& note) {
    const auto baselines = allBaselines();
    const auto info =
        std::ranges::find(baselines, name, [](const BaselineInfo& i) { return std::string_view(i.name); });
    BaselineTimer timer(context, *info, data);
    note = checkBaseline(timer.baseline(), expressions, timer.data(), {}).text();
    timer.prepare(expressions);
    timer.step(false);
    return context.sample(samples, 3, [&] {
      timer.step(false);
      return evaluations / timer.kernelSeconds() / kTera;
    });
  };
  const std::string what = "stack kernel in local memory, one row per thread, losses, " + population;
  std::string note;
  const auto at_once = ratesOf("stack-once", 9, note);
  context.report->add("baseline", {what + ", one launch", "T nodes/s", at_once, {}, note});
  const auto one_by_one = ratesOf("stack-each", 5, note);
  context.report->add("baseline", {what + ", one launch per expression", "T nodes/s", one_by_one, {}, note});
  return medianOf(at_once);
}

std::vector<double> interpreterRates(const BenchContext& context, std::span<const Expression> expressions,
                                     const BenchData& data, Math math) {
  const Engine engine = context.engine(math);
  const Dataset uploaded = must(engine.upload(data.view()));
  const Program program = engine.compile(expressions, {.tier = Tier::kInterpret});
  return kernelRates(context, engine, program, uploaded, nodesOf(expressions), 21, 3);
}

}  // namespace

void benchInterpreter(const BenchContext& context) {
  const BenchData data(kBenchColumns, kPopulationRows);
  for (const std::string population : {"mixed", "arithmetic"}) {
    const std::vector<Expression> expressions = populationOf(population, kPopulation);
    const std::string what =
        fmt::format("interpreter, f32 {{}}, {} x {} {}, losses", kPopulation, kPopulationRows, population);
    const std::vector<double> fast = interpreterRates(context, expressions, data, Math::kFast);
    const bool mixed = population == "mixed";
    context.report->add("interpreter",
                        {fmt::format(fmt::runtime(what), "fast"), "T nodes/s", fast, atLeast(mixed ? 5.5 : 8)});
    context.report->add("interpreter", {fmt::format(fmt::runtime(what), "precise"), "T nodes/s",
                                        interpreterRates(context, expressions, data, Math::kPrecise)});
    if (!context.onGpu()) continue;
    const double baseline = measureBaseline(context, population, expressions, data);
    std::vector<double> ratios;
    for (const double rate : fast) ratios.push_back(rate / baseline);
    Figure figure{fmt::format(fmt::runtime(what), "fast") + ", over the stack kernel", "times", ratios};
    if (mixed) figure.target = atLeast(5);
    context.report->add("interpreter", std::move(figure));
  }
}

void benchSmall(const BenchContext& context) {
  const std::vector<Expression> expressions = populationOf("small", kSmallExpressions);
  const BenchData data(2, kSmallRows);
  const Engine engine = context.engine(Math::kFast);
  const Dataset uploaded = must(engine.upload(data.view()));
  const Program program = engine.compile(expressions, {.tier = Tier::kInterpret});
  timeLoss(engine, program, uploaded, parametersFor(program, 0));
  std::vector<double> device, wall;
  int step = 0;
  context.sample(21, 3, [&] {
    const Seconds seconds = timeLoss(engine, program, uploaded, parametersFor(program, ++step));
    device.push_back(seconds.device * kMillisPerSecond);
    wall.push_back(seconds.wall * kMillisPerSecond);
    return seconds.wall;
  });
  const std::string what =
      fmt::format("interpreter, {} small expressions x {} rows, losses: ", kSmallExpressions, kSmallRows);
  const std::string note = fmt::format("{:.2f} tokens an expression, {} parameters in all",
                                       nodesOf(expressions) / static_cast<double>(kSmallExpressions),
                                       program.parameterOffset(program.size()));
  context.report->add("small", {what + "device", "ms", device, atMost(0.6), note});
  context.report->add("small", {what + "new parameters to losses on the host", "ms", wall, atMost(3)});
}

void benchText(const BenchContext& context) {
  const std::string text = textOf(populationOf("small", kSmallExpressions), Language::kPostfix);
  const Engine engine = context.engine(Math::kFast);
  std::vector<double> all, parsing, encoding;
  context.sample(9, 5, [&] {
    const Stopwatch watch;
    const std::vector<Expression> expressions = parseLines(text, Language::kPostfix);
    parsing.push_back(watch.seconds() * kMillisPerSecond);
    const Program program = engine.compile(expressions, {.tier = Tier::kInterpret});
    all.push_back(watch.seconds() * kMillisPerSecond);
    encoding.push_back(all.back() - parsing.back());
    if (!program.failures().empty()) throw BenchFailure{program.failures().front().error};
    return all.back();
  });
  const std::string what = fmt::format("{} small expressions: ", kSmallExpressions);
  context.report->add("text", {what + "postfix text to encoded programs", "ms", all, atMost(60)});
  context.report->add("text", {what + "of that, parsing", "ms", parsing});
  context.report->add("text", {what + "of that, passes, encoding and copying", "ms", encoding});
}

}  // namespace srjit
