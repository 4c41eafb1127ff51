// Generations of new expressions, as a search evaluates each of them once: from expressions in memory to
// losses on the host, beside designs that prepare little.
#include "tools/bench/scenarios/fresh.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "tests/generators/klein_nishina.h"
#include "tests/generators/token_arrays.h"
#include "tools/bench/designs/device.h"
#include "tools/bench/scenarios/on_device.h"
#include "tools/bench/work.h"

namespace srjit {
namespace {

constexpr std::size_t kFewRows = 200, kFreshSamples = 15, kFrontEndSample = 10'000;
constexpr double kFreshSeconds = 2;  // per series, making the expressions included

TokenArrays arraysOf(std::span<const Expression> generation) {
  TokenArrays arrays;
  for (const Expression& expression : generation) arrays.addPostfix(expression);
  return arrays;
}

template <class T>
void shuffleValues(Random& random, std::span<T> values) {
  for (std::size_t left = values.size(); left > 1; --left) std::swap(values[left - 1], values[random.below(left)]);
}

/// One population of a device: its size, and times of series of generations.
class FreshBench {
 public:
  FreshBench(const Bench& bench, const char* population, std::size_t expressions, std::size_t rows)
      : bench_(bench),
        engine_(bench.engine()),
        population_(population),
        count_(expressions),
        source_(population),
        columns_(freshData(population, rows)),
        data_(must(engine_.upload(columns_.view()))),
        subject_(subjectOf(expressions, titleOfPopulation(), rows)) {}

  void run(double seconds) {
    const Stopwatch watch;
    series(engine_, data_, subject_, Tier::kAuto);
    series(engine_, data_, subject_, Tier::kAuto, false);
    if (bench_.onGpu()) {
      series(engine_, data_, subject_, Tier::kInterpret);
      if (hasDirect(engine_)) series(engine_, data_, subject_, Tier::kDirect);
      if (population_ != "formula") onDevice();
    }
    const bool is_short = data_.rows() < kFewRows;  // of a population that there is with more rows, too
    if (!is_short) frontEnd();
    if (population_ == "mixed") {
      if (!is_short) halfKeptSeries();
      if (bench_.onGpu()) {
        const Engine engine = must(Engine::create({.device = "cpu", .math = Math::kFast}));
        const Dataset data = must(engine.upload(columns_.view()));
        for (const bool simplify : {true, false}) {
          series(engine, data, subject_.with("on the processor"), Tier::kAuto, simplify);
        }
      }
    }
    const std::vector<Expression> first = next();
    const DesignWork work{
        .subject = subject_, .data = columns_, .expressions = first, .renewed = [&] { return next(); }};
    runDesigns(bench_, work, 0.9 * (seconds - watch.seconds()));
  }

 private:
  const char* titleOfPopulation() const {
    return population_ == "small" ? "small expressions" : population_ == "mixed" ? "random trees" : "mutated formulas";
  }
  std::vector<Expression> next() { return source_.next(count_); }

  /// Samples of one tier, each of two new generations, one for each way to their losses, after two that are not timed:
  /// these load the kernels and grow buffers.
  void series(const Engine& engine, const Dataset& data, const Subject& subject, Tier tier, bool simplify = true) {
    const CompileOptions options{.tier = tier, .simplify = simplify};
    timeFresh(engine, data, next(), options);
    timeOneCall(engine, data, next(), options);
    std::vector<FreshTimes> samples;
    std::vector<double> one_call;
    Tier served = tier;
    bench_.sample(kFreshSamples, kFreshSeconds, [&] {
      const FreshRun run = timeFresh(engine, data, next(), options);
      samples.push_back(run);
      served = run.program.status().tier;
      one_call.push_back(timeOneCall(engine, data, next(), options).first);
      return run.total;
    });
    const Subject named =
        inTier(subject, tier).with(simplify ? "" : "as written", {{"served", nameOf(served)}, {"simplify", simplify}});
    const auto add = [&](const char* metric, const auto& of) {
      std::vector<double> values;
      for (const FreshTimes& times : samples) values.push_back(of(times));
      bench_.add(named, metric, "ms", values);
    };
    bench_.add(named, "token arrays to losses", "ms", one_call, nameOf(served));
    add("the same by compile() and loss()", [](const FreshTimes& t) { return t.total; });
    add("of that, compile()", [](const FreshTimes& t) { return t.compile; });
    add("of that, passes and encoding", [](const FreshTimes& t) { return t.passes + t.encoding; });
    if (bench_.onGpu()) add("of that, kernels", [](const FreshTimes& t) { return t.kernels; });
    add("evaluated again", [](const FreshTimes& t) { return t.again.wall; });
    add("evaluated again, kernels", [](const FreshTimes& t) { return t.again.device; });
  }

  /// Samples of generations that are on the device already, against the bits of those from the host.
  void onDevice() {
    OnDevice on_device(engine_, data_, openBaselineDevice(bench_.ordinal()), count_);
    std::vector<OnDeviceTimes> samples;
    bench_.sample(kFreshSamples, kFreshSeconds, [&] {
      const std::vector<Expression> generation = withoutParameters(next());
      const auto [times, losses] = on_device.run(generation);
      const CompileOptions as_written{.tier = Tier::kInterpret, .simplify = false};
      requireSameBits(losses, timeOneCall(engine_, data_, generation, as_written).second, "losses on the device");
      samples.push_back(times);
      return times.wall;
    });
    const auto add = [&](const char* metric, const char* unit, double OnDeviceTimes::* member) {
      std::vector<double> values;
      for (const OnDeviceTimes& times : samples) values.push_back(times.*member);
      bench_.add(subject_.with("on the device", {{"on_device", true}}), metric, unit, values);
    };
    add("token arrays to losses", "ms", &OnDeviceTimes::wall);
    add("of that, kernels", "ms", &OnDeviceTimes::kernels);
    add("of that, the call", "us", &OnDeviceTimes::submit);
  }

  void frontEnd() {
    EngineOptions options = bench_.options();
    options.threads = 1;
    const Engine engine = must(Engine::create(options));
    const std::size_t count = std::min(count_, kFrontEndSample);
    for (const bool simplify : {true, false}) {
      const auto once = [&] { return frontEndSeconds(engine, source_.next(count), simplify); };
      once();
      bench_.add({fmt::format("{} {}, one thread{}", count, titleOfPopulation(), simplify ? "" : ", as written"),
                  {{"expressions", count}, {"simplify", simplify}}},
                 "passes and encoding", "ns/token", bench_.sample(kFreshSamples, kFreshSeconds / 2, once));
    }
  }

  /// Each sample is a fresh generation, and one in which half of that one is kept, while its program is alive.
  void halfKeptSeries() {
    std::vector<double> half, ratios;
    bench_.sample(kFreshSamples, 2 * kFreshSeconds, [&] {
      const std::vector<Expression> last = next();
      const FreshRun before = timeFresh(engine_, data_, last, {});
      const NextGeneration generation = halfKept(last, next(), ratios.size());
      const FreshRun after = timeFresh(engine_, data_, generation.expressions, {});
      compareKept(generation, after.losses, before.losses);
      half.push_back(after.total);
      ratios.push_back(after.total / before.total);
      return after.total;
    });
    const Subject subject = subject_.with("half of them of the generation before");
    bench_.add(subject, "token arrays to losses", "ms", half);
    bench_.add(subject, "over a fresh generation", "times", ratios);
  }

  const Bench& bench_;
  const Engine engine_;
  const std::string population_;
  const std::size_t count_;
  FreshSource source_;
  const BenchData columns_;
  const Dataset data_;
  const Subject subject_;
};

}  // namespace

std::vector<Expression> FreshSource::next(std::size_t count) {
  std::vector<Expression> generation;
  std::vector<std::uint64_t> hashes;
  generation.reserve(count);
  hashes.reserve(count);
  while (generation.size() < count) {
    for (Expression& expression : populationOf(population_, count - generation.size(), ++seed_)) {
      const std::uint64_t hash = hashOf(expression);
      if (seen_.contains(hash)) continue;
      generation.push_back(std::move(expression));
      hashes.push_back(hash);
    }
  }
  seen_.insert(hashes.begin(), hashes.end());
  return generation;
}

BenchData freshData(std::string_view population, std::size_t rows) {
  if (population == "formula") return formulaData(rows);
  return positiveData(population == "small" ? 2 : kTreeColumns, rows);
}

NextGeneration halfKept(std::span<const Expression> last, std::span<const Expression> fresh, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::size_t> from(last.size());
  std::iota(from.begin(), from.end(), std::size_t{0});
  shuffleValues(random, std::span(from));
  std::fill(from.begin() + static_cast<std::ptrdiff_t>(from.size() / 2), from.end(), NextGeneration::kNew);
  shuffleValues(random, std::span(from));
  NextGeneration next{.expressions = {}, .from = std::move(from)};
  next.expressions.reserve(last.size());
  for (std::size_t taken = 0; const std::size_t place : next.from) {
    next.expressions.push_back(place == NextGeneration::kNew ? fresh[taken++] : last[place]);
  }
  return next;
}

FreshRun timeFresh(const Engine& engine, const Dataset& data, std::span<const Expression> generation,
                   CompileOptions options) {
  const std::vector<double> parameters = parameterNumbers(parametersOf(generation), 0);
  const TokenArrays arrays = arraysOf(generation);
  const Stopwatch watch;
  options.expected_rows = data.rows();
  Program program = must(engine.compile(arrays.view(), options));
  if (!program.failures().empty()) throw BenchFailure{program.failures().front().error};
  FreshTimes times{.compile = watch.seconds()};
  Losses losses = must(engine.loss(program, data, parameters));
  times.total = watch.seconds();
  if (!losses.failures.empty()) throw BenchFailure{losses.failures.front().error};
  const ProgramStatus status = program.status();
  // Where machine code serves, it was made after compile().
  const double made = status.tier == Tier::kInterpret ? 0 : status.seconds_compiling;
  times.passes = program.info().seconds_passes;
  times.encoding = program.info().seconds_codegen + made;
  times.kernels = status.device_seconds;
  times.again = timeLoss(engine, program, data, parameters);
  return {times, std::move(losses.values), std::move(program)};
}

std::pair<double, std::vector<double>> timeOneCall(const Engine& engine, const Dataset& data,
                                                   std::span<const Expression> generation,
                                                   const CompileOptions& options) {
  const std::vector<double> parameters = parameterNumbers(parametersOf(generation), 0);
  const TokenArrays arrays = arraysOf(generation);
  const Stopwatch watch;
  Losses losses = must(engine.loss(arrays.view(), data, parameters, {}, options));
  const double seconds = watch.seconds();
  if (!losses.failures.empty()) throw BenchFailure{losses.failures.front().error};
  return {seconds, std::move(losses.values)};
}

void compareKept(const NextGeneration& generation, std::span<const double> losses, std::span<const double> before) {
  std::vector<double> kept, expected;
  for (std::size_t e = 0; e < losses.size(); ++e) {
    if (generation.from[e] == NextGeneration::kNew) continue;
    kept.push_back(losses[e]);
    expected.push_back(before[generation.from[e]]);
  }
  requireSameBits(kept, expected, "losses of kept expressions");
}

double frontEndSeconds(const Engine& engine, std::span<const Expression> generation, bool simplify) {
  const CompileOptions options{.tier = Tier::kInterpret, .simplify = simplify};
  const Program program = must(engine.compile(arraysOf(generation).view(), options));
  const ProgramInfo info = program.info();
  return (info.seconds_passes + info.seconds_codegen) / static_cast<double>(info.nodes_before);
}

void benchFresh(const Bench& bench) {
  Bench losses = bench;
  losses.predictions = false;
  losses.losses = true;
  struct Work {
    const char* population;
    std::size_t expressions, rows, quick_expressions, quick_rows;
  };
  const std::size_t formula_rows = bench.onGpu() ? 1'000'000 : 100'000;
  std::vector<Work> works = {{"small", 250'000, 362, 2000, 362},
                             {"mixed", kTrees, kTreeRows, 200, kTreeRows},
                             {"mixed", kTrees, 100, 200, 100},
                             {"formula", 2000, formula_rows, 50, 20'000}};
  for (; !works.empty(); works.erase(works.begin())) {
    const Work& work = works.front();
    FreshBench(losses, work.population, bench.quick ? work.quick_expressions : work.expressions,
               bench.quick ? work.quick_rows : work.rows)
        .run(bench.left() / static_cast<double>(works.size()));
  }
}

}  // namespace srjit
