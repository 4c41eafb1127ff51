// All GPUs of the machine as one engine, against each of them alone.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "ir/numeric.h"
#include "ir/ops.h"
#include "runtime/pool/device_names.h"
#include "tests/generators/klein_nishina.h"
#include "tests/generators/token_arrays.h"
#include "tools/bench/gpu_context.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kManyGpusPart = "many-gpus";
constexpr std::size_t kManySamples = 9;
constexpr double kManySeconds = 1;  // per series
constexpr double kWarmSeconds = 0.3;
constexpr unsigned kFitPasses = 10;

struct SharedWork {
  const char* key;
  const char* name;
  std::vector<Expression> expressions;
  BenchData data;
  std::size_t fits;  ///< of the first so many
};

/// f with a factor and its constants as parameters, so that there is something to fit.
Expression withFactor(const Expression& f) {
  std::vector<Token> tokens;
  std::uint32_t next = 0;
  for (const Token& token : f.tokens()) {
    tokens.push_back(token.kind == Token::Kind::kConstant ? Token::parameter(next++) : token);
  }
  tokens.push_back(Token::parameter(next));
  tokens.push_back(Token::operation(Op::kMul));
  return Expression::create(std::move(tokens)).value();
}

std::vector<SharedWork> sharedWorks(const BenchContext& context) {
  const std::size_t part = context.quick ? 200 : context.onGpu() ? 1 : 10;
  std::vector<Expression> formulas;
  const Generations generations(2'000 / part);
  for (const Expression& f : generations.current()) formulas.push_back(withFactor(f));
  GeneratorOptions trees = *findPopulation("mixed", 11);
  trees.parameters = 3;
  trees.parameter_probability = 0.3;
  std::vector<SharedWork> works;
  works.push_back(
      {"formulas", "mutated formulas", std::move(formulas), BenchData::ofFormula(1'000'000 / part), 2'000 / part});
  works.push_back({"trees", "random trees", ExpressionGenerator(trees).batch(100'000 / part),
                   BenchData::positive(kBenchColumns, context.quick ? 1'000 : kPopulationRows), 10'000 / part});
  return works;
}

/// Each device alone, then all of them, if there are several.
std::vector<std::string> deviceSets(const BenchContext& context) {
  if (!context.onGpu()) return {context.device};
  const std::string all = must(Engine::create({.device = "cuda:all", .cache_directory = ""})).options().device;
  const std::vector<unsigned> ordinals =
      must(cudaOrdinals(all, [] { return Result<std::size_t>(std::size_t{0}); })).value();
  std::vector<std::string> sets;
  for (const unsigned ordinal : ordinals) sets.push_back(nameOfDevices({ordinal}));
  if (sets.size() > 1) sets.push_back(all);
  return sets;
}

/// What was measured on a set of devices, and what came out.
struct SharedRun {
  std::map<std::string, std::vector<double>> milliseconds;  ///< by what was measured
  double device_milliseconds = 0;  ///< of the last loss of the program that is kept: the longest of all devices
  std::vector<double> losses, one_call, fitted;
};

/// Measures one set of devices.
SharedRun runOn(const BenchContext& context, const SharedWork& work, const std::string& devices) {
  BenchContext own = context;
  own.device = devices;
  const Engine engine = own.engine(Math::kFast, fmt::format("cache of {}", work.key));
  const Dataset data = must(engine.upload(work.data.view()));
  const Program program = engine.compile(work.expressions, {.expected_rows = data.rows()});
  const std::vector<double> parameters = parametersFor(program, 0);
  TokenArrays arrays;
  for (const Expression& expression : work.expressions) arrays.addPostfix(expression);
  SharedRun run;
  const auto measure = [&](const char* what, const auto& body) {
    // A GPU that was idle takes a tenth of a second to raise its clocks, and kernels may be compiled while others
    // serve.
    for (const Stopwatch watch; watch.seconds() < kWarmSeconds || program.status().compiling;) body();
    run.milliseconds[what] = context.sample(kManySamples, kManySeconds, [&] {
      const Stopwatch watch;
      body();
      return watch.seconds() * kMillisPerSecond;
    });
  };
  measure("losses", [&] { run.losses = must(engine.loss(program, data, parameters)).values; });
  run.device_milliseconds = program.status().device_seconds * kMillisPerSecond;
  measure("losses in one call", [&] { run.one_call = must(engine.loss(arrays.view(), data, parameters)).values; });
  const std::size_t fits = std::min(work.fits, work.expressions.size());
  const Program fitted = engine.compile(std::span(work.expressions).first(fits));
  const std::vector<double> starts = parametersFor(fitted, 1);
  measure("fits", [&] { run.fitted = must(engine.fit(fitted, data, starts, {.iterations = kFitPasses})).parameters; });
  if (const std::vector<std::string> notices = engine.notices(); !notices.empty()) {
    throw BenchFailure{{Errc::kMachine, notices.front(), {}}};
  }
  return run;
}

void checkSame(const char* what, std::span<const double> numbers, std::span<const double> expected,
               const std::string& devices) {
  const bool is_same = std::ranges::equal(numbers, expected, [](double a, double b) { return sameBits(a, b); });
  if (is_same) return;
  throw BenchFailure{
      {Errc::kMachine, fmt::format("{} of {} have other bits than those of the first device", what, devices), {}}};
}

Json runWork(const BenchContext& context, const SharedWork& work, std::span<const std::string> sets) {
  Json row = {{"key", work.key},
              {"name", work.name},
              {"expressions", work.expressions.size()},
              {"rows", work.data.rows()},
              {"fits", work.fits}};
  std::optional<SharedRun> first;
  for (const std::string& devices : sets) {
    SharedRun run = runOn(context, work, devices);
    if (!first) first = run;
    checkSame("losses", run.losses, first->losses, devices);
    checkSame("losses in one call", run.one_call, first->losses, devices);
    checkSame("fits", run.fitted, first->fitted, devices);
    row["device milliseconds"][devices] = run.device_milliseconds;
    for (const auto& [what, samples] : run.milliseconds) {
      const std::size_t count = what == "fits" ? work.fits : work.expressions.size();
      const std::string title =
          fmt::format("{} {} x {} rows, {}, {}", count, work.name, work.data.rows(), what, devices);
      context.report->add(kManyGpusPart, {title, "ms", samples});
      row["milliseconds"][devices][what] = samples;
      if (sets.size() == 1 || &devices != &sets.back()) continue;
      const double ratio = medianOf(first->milliseconds[what]) / medianOf(samples);
      context.report->add(kManyGpusPart, {title + ": of one, over all", "times", {ratio}});
      row["ratios"][what] = ratio;
    }
  }
  return row;
}

}  // namespace

void benchManyGpus(const BenchContext& context) {
  const std::vector<std::string> sets = deviceSets(context);
  Json works = Json::array();
  for (const SharedWork& work : sharedWorks(context)) {
    if (!context.mayBegin(kManyGpusPart, work.name)) continue;
    works.push_back(runWork(context, work, sets));
    context.report->attach(kManyGpusPart, {{"devices", sets}, {"works", works}});
  }
}

}  // namespace srjit
