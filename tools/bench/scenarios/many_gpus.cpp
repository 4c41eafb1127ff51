// All GPUs of the machine as one engine, against each of them.
#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "ir/ops.h"
#include "runtime/pool/make_executor.h"
#include "tests/generators/token_arrays.h"
#include "tools/bench/work.h"

namespace srjit {
namespace {

constexpr std::size_t kManySamples = 9;
constexpr double kManySeconds = 1, kClockSeconds = 0.3;  // per series
constexpr unsigned kFitPasses = 10;

struct ManyWork {
  const char* name;
  std::vector<Expression> expressions;
  BenchData data;
  std::size_t fits;  ///< of the first expressions
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

std::vector<ManyWork> manyWorks(const Bench& bench) {
  const std::size_t part = bench.quick ? 200 : bench.onGpu() ? 1 : 10;
  std::vector<Expression> formulas = populationOf("formula", 2'000 / part);
  std::ranges::transform(formulas, formulas.begin(), withFactor);
  GeneratorOptions trees = *findPopulation("mixed", 11);
  trees.parameters = 3;
  trees.parameter_probability = 0.3;
  std::vector<ManyWork> works;
  works.push_back({"mutated formulas", std::move(formulas), formulaData(1'000'000 / part), 2'000 / part});
  works.push_back({"random trees", ExpressionGenerator(trees).batch(100'000 / part),
                   positiveData(kTreeColumns, bench.quick ? 1'000 : kTreeRows), kTrees / part});
  return works;
}

/// Each device, then all of them, if there are several.
std::vector<std::string> deviceSets(const Bench& bench) {
  if (!bench.onGpu()) return {bench.device};
  const std::string all = must(Engine::create({.device = "cuda:all", .cache_directory = ""})).options().device;
  const std::vector<unsigned> ordinals =
      must(cudaOrdinals(all, [] { return Result<std::size_t>(std::size_t{0}); })).value();
  std::vector<std::string> sets;
  for (const unsigned ordinal : ordinals) sets.push_back(nameOfDevices({ordinal}));
  if (sets.size() > 1) sets.push_back(all);
  return sets;
}

/// Seconds and results of one set of devices, by metric.
struct ManyRun {
  std::map<std::string, std::vector<double>> seconds, results;
};

ManyRun runOn(const Bench& bench, const ManyWork& work, const std::string& devices) {
  EngineOptions options = bench.options();
  options.device = devices;
  const Engine engine = must(Engine::create(options));
  const Dataset data = must(engine.upload(work.data.view()));
  const Program program = engine.compile(work.expressions, {.expected_rows = data.rows()});
  const Program fitted = engine.compile(std::span(work.expressions).first(work.fits));
  const std::vector<double> parameters = parametersFor(program, 0), starts = parametersFor(fitted, 1);
  TokenArrays arrays;
  for (const Expression& expression : work.expressions) arrays.addPostfix(expression);
  ManyRun run;
  const auto measure = [&](const char* what, const auto& body) {
    // A GPU that was idle takes a tenth of a second to raise its clocks, and kernels may be compiled while others
    // serve.
    for (const Stopwatch watch; watch.seconds() < kClockSeconds || program.status().compiling;) body();
    run.seconds[what] = bench.sample(kManySamples, kManySeconds, [&] {
      const Stopwatch watch;
      run.results[what] = body();
      return watch.seconds();
    });
  };
  measure("losses", [&] { return must(engine.loss(program, data, parameters)).values; });
  run.seconds["kernels of losses, the longest of all devices"] = {program.status().device_seconds};
  measure("losses in one call", [&] { return must(engine.loss(arrays.view(), data, parameters)).values; });
  measure("fits", [&] { return must(engine.fit(fitted, data, starts, {.iterations = kFitPasses})).parameters; });
  if (const std::vector<std::string> notices = engine.notices(); !notices.empty()) {
    throw BenchFailure{{Errc::kMachine, notices.front(), {}}};
  }
  return run;
}

void benchSets(const Bench& bench, const ManyWork& work, std::span<const std::string> sets) {
  std::optional<ManyRun> first;
  for (const std::string& devices : sets) {
    ManyRun run = runOn(bench, work, devices);
    if (!first) first = run;
    requireSameBits(run.results["losses in one call"], run.results["losses"], "losses in one call of " + devices);
    for (const auto& [what, results] : run.results) {
      requireSameBits(results, first->results[what], fmt::format("{} of {}", what, devices));
    }
    const Subject subject = subjectOf(work.expressions.size(), work.name, work.data.rows())
                                .with(devices, {{"devices", devices}, {"fits", work.fits}});
    for (const auto& [what, samples] : run.seconds) {
      bench.add(subject.with(what == "fits" ? fmt::format("{} of them", work.fits) : ""), what.c_str(), "ms", samples);
      if (sets.size() == 1 || &devices != &sets.back() || !run.results.contains(what)) continue;
      bench.add(subject.with(what), "of one, over all", "times", {medianOf(first->seconds[what]) / medianOf(samples)});
    }
  }
}

}  // namespace

void benchManyGpus(const Bench& bench) {
  const std::vector<std::string> sets = deviceSets(bench);
  for (const ManyWork& work : manyWorks(bench)) {
    if (bench.mayBegin(work.name)) benchSets(bench, work, sets);
  }
}

}  // namespace srjit
