// Parts about the interpreter: rates against the textbook kernel, small expressions, text to programs.
#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "ir/reference.h"
#include "ir/text.h"
#include "tools/bench/gpu_baseline.h"
#include "tools/bench/gpu_bench.h"

namespace srjit {
namespace {

constexpr std::size_t kPopulation = 10000, kRows = 10860, kColumns = 10;
constexpr std::size_t kSmallExpressions = 250000, kSmallRows = 362;
constexpr double kTera = 1e-12, kMilli = 1e3;

/// How much of the baseline's predictions is right: within the error bound of the reference, and close to sr-jit's.
struct Agreement {
  std::size_t promised = 0, outside = 0, compared = 0, close = 0;
};

Agreement compareBaseline(const StackBaseline& baseline, const BenchContext& context,
                          std::span<const Expression> expressions, const BenchData& data) {
  const std::size_t count = std::min<std::size_t>(200, expressions.size()), rows = data.rows();
  const std::vector<float> got = baseline.predictions(count);
  const Engine engine = context.engine(Math::kFast);
  std::vector<float> own(count * rows);
  must(engine.evaluate(engine.compile(expressions.first(count), {.tier = Tier::kInterpret}),
                       must(engine.upload(data.view())), {}, std::span<float>(own)));
  Agreement agreement;
  for (std::size_t e = 0; e < count; ++e) {
    for (std::size_t r = e; r < rows; r += rows / 16) {
      std::vector<double> row;
      for (const auto& column : data.columns) row.push_back(static_cast<double>(column[r]));
      const auto value = static_cast<double>(got[e * rows + r]), other = static_cast<double>(own[e * rows + r]);
      const bool both_odd = !std::isfinite(value) && !std::isfinite(other);
      ++agreement.compared;
      agreement.close += both_odd || std::fabs(value - other) <= 1e-3 * (std::fabs(other) + 1e-3);
      const Bounded bound = evaluateBounded(expressions[e], row, {}, {Precision::kF32, Math::kFast, false});
      if (!std::isfinite(bound.error) || !std::isfinite(bound.value)) continue;
      ++agreement.promised;
      agreement.outside += !(std::fabs(value - bound.value) <= bound.error);
    }
  }
  return agreement;
}

/// Medians, in node evaluations a second.
struct BaselineRates {
  double at_once;
};

BaselineRates measureBaseline(const BenchContext& context, const std::string& population,
                              std::span<const Expression> expressions, const BenchData& data) {
  const StackBaseline baseline(context.ordinal(), expressions, data.columns);
  const double evaluations = nodesOf(expressions) * static_cast<double>(data.rows());
  baseline.runAtOnce();
  const Agreement agreement = compareBaseline(baseline, context, expressions, data);
  if (agreement.outside * 1000 > agreement.promised || agreement.close * 100 < agreement.compared * 95) {
    throw BenchFailure{
        {Errc::kMachine,
         fmt::format("the baseline kernel is wrong on {}: {} of {} samples outside of their bound, {} of {} close to "
                     "sr-jit's predictions",
                     population, agreement.outside, agreement.promised, agreement.close, agreement.compared),
         {}}};
  }
  const auto at_once = context.sample(9, 3, [&] { return evaluations / baseline.runAtOnce() * kTera; });
  const std::string what = "stack kernel in local memory, one row a thread, " + population;
  const std::string note = fmt::format("checked: {} of {} samples outside of their bound, {} of {} close to sr-jit's",
                                       agreement.outside, agreement.promised, agreement.close, agreement.compared);
  context.report->add("baseline", {what + ", one launch", "T nodes/s", at_once, {}, note});
  context.report->add("baseline", {what + ", one launch per expression", "T nodes/s",
                                   context.sample(5, 3, [&] { return evaluations / baseline.runOneByOne() * kTera; })});
  return {medianOf(at_once)};
}

std::vector<double> interpreterRates(const BenchContext& context, std::span<const Expression> expressions,
                                     const BenchData& data, Math math) {
  const Engine engine = context.engine(math);
  const Dataset uploaded = must(engine.upload(data.view()));
  const Program program = engine.compile(expressions, {.tier = Tier::kInterpret});
  timeLoss(engine, program, uploaded, {});
  const double evaluations = nodesOf(expressions) * static_cast<double>(data.rows());
  return context.sample(21, 3, [&] { return evaluations / timeLoss(engine, program, uploaded, {}).device * kTera; });
}

}  // namespace

void benchInterpreter(const BenchContext& context) {
  const BenchData data(kColumns, kRows);
  for (const std::string population : {"mixed", "arithmetic"}) {
    const std::vector<Expression> expressions = populationOf(population, kPopulation);
    const std::string what = fmt::format("interpreter, f32 {{}}, {} x {} {}, losses", kPopulation, kRows, population);
    const std::vector<double> fast = interpreterRates(context, expressions, data, Math::kFast);
    const bool mixed = population == "mixed";
    context.report->add("interpreter",
                        {fmt::format(fmt::runtime(what), "fast"), "T nodes/s", fast, atLeast(mixed ? 5.5 : 8)});
    context.report->add("interpreter", {fmt::format(fmt::runtime(what), "precise"), "T nodes/s",
                                        interpreterRates(context, expressions, data, Math::kPrecise)});
    if (!context.onGpu()) continue;
    const double baseline = measureBaseline(context, population, expressions, data).at_once;
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
    device.push_back(seconds.device * kMilli);
    wall.push_back(seconds.wall * kMilli);
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
    parsing.push_back(watch.seconds() * kMilli);
    const Program program = engine.compile(expressions, {.tier = Tier::kInterpret});
    all.push_back(watch.seconds() * kMilli);
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
