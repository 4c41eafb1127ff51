// Generations of which every expression is new, as a search evaluates each of them once: from expressions in memory to
// losses on the host, beside designs that prepare little.
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "runtime/engine_parts.h"
#include "tools/bench/scenarios/baseline_runs.h"
#include "tools/bench/scenarios/fresh_generations.h"
#include "tools/progress.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFreshPart = "fresh";
constexpr double kProcessorMilliseconds = 15, kHalfKeptRatio = 0.6;  // targets
constexpr std::size_t kSamples = 15;
constexpr double kMostSecondsToWait = 60;        // for kernels that are made in the background
constexpr double kSampleSeconds = 2;             // per series, making the expressions included
constexpr std::size_t kFrontEndSample = 10'000;  // expressions

struct FreshWork {
  FreshKind kind;
  const char* name;
  std::size_t expressions, rows;
  std::optional<Target> total_ms = {}, front_end_ns = {};

  std::string what() const { return fmt::format("{} {} x {} rows", expressions, name, rows); }
};

/// Targets are for the whole sizes, those of times for a GPU.
std::vector<FreshWork> worksOf(const BenchContext& context) {
  const std::optional<Target> small_ns = atMost(45), random_ns = atMost(80);
  constexpr const char *kSmall = "small expressions", *kRandom = "random trees", *kMutants = "mutated formulas";
  if (context.quick) {
    return {{FreshKind::kSmall, kSmall, 2000, 362},
            {FreshKind::kRandom, kRandom, 200, 10860},
            {FreshKind::kMutants, kMutants, 50, 20000}};
  }
  if (!context.onGpu()) {
    return {{FreshKind::kSmall, kSmall, 250000, 362, {}, small_ns},
            {FreshKind::kRandom, kRandom, 10000, 10860, atMost(kProcessorMilliseconds), random_ns},
            {FreshKind::kMutants, kMutants, 2000, 100000}};
  }
  return {{FreshKind::kSmall, kSmall, 250000, 362, atMost(6), small_ns},
          {FreshKind::kRandom, kRandom, 10000, 10860, atMost(2.5), random_ns},
          {FreshKind::kMutants, kMutants, 2000, 1000000, atMost(4.5)}};
}

/// The members of FreshTimes in JSON.
constexpr std::pair<const char*, double FreshTimes::*> kTimes[] = {{"total_ms", &FreshTimes::total},
                                                                   {"compile_ms", &FreshTimes::compile},
                                                                   {"passes_ms", &FreshTimes::passes},
                                                                   {"encoding_ms", &FreshTimes::encoding},
                                                                   {"kernels_ms", &FreshTimes::kernels},
                                                                   {"again_ms", &FreshTimes::again},
                                                                   {"again_kernels_ms", &FreshTimes::again_kernels}};

class FreshBench {
 public:
  explicit FreshBench(const BenchContext& context)
      : context_(context), engine_(context.engine(Math::kFast)), has_direct_(hasDirect(engine_)) {}

  void run() {
    const std::vector<FreshWork> works = worksOf(context_);
    Json shapes = Json::array();
    for (std::size_t i = 0; i < works.size(); ++i) {
      shapes.push_back(shape(works[i], context_.left() / static_cast<double>(works.size() - i)));
      context_.report->attach(kFreshPart, {{"shapes", shapes}});
    }
  }

 private:
  std::vector<Expression> next(const FreshWork& work) { return source_.next(work.expressions); }

  Json shape(const FreshWork& work, double seconds) {
    const Stopwatch watch;
    source_ = FreshSource(work.kind);
    const BenchData data = dataFor(work.kind, work.rows);
    const Dataset uploaded = must(engine_.upload(data.view()));
    const std::vector<Expression> first = next(work);
    Json row = {
        {"population", work.name}, {"expressions", work.expressions}, {"rows", work.rows}, {"tokens", nodesOf(first)}};
    row["fresh"] = series(engine_, uploaded, work, work.what(), Tier::kAuto, work.total_ms);
    if (context_.onGpu()) {
      row["interpreted"] = series(engine_, uploaded, work, work.what() + ", interpreted", Tier::kInterpret);
      if (has_direct_) row["direct"] = series(engine_, uploaded, work, work.what() + ", direct code", Tier::kDirect);
    }
    if (context_.onGpu()) row["divided"] = divided(data, work);
    row["front_end_ns"] = frontEnd(work);
    if (work.kind == FreshKind::kRandom) {
      row["half_kept"] = halfKeptSeries(uploaded, work);
      if (context_.onGpu()) row["processor"] = processor(data, work);
    }
    const BaselineWork designs{
        .part = kFreshPart, .what = work.what(), .data = data, .expressions = first, .renewed = [&] {
          return next(work);
        }};
    row["baselines"] = runBaselines(context_, designs, 0.9 * (seconds - watch.seconds()));
    return row;
  }

  /// Samples of one tier, each of two new generations, one for each way to their losses, after two that are not timed:
  /// these load the kernels and grow buffers.
  Json series(const Engine& engine, const Dataset& data, const FreshWork& work, const std::string& what, Tier tier,
              std::optional<Target> target = {}) {
    timeFresh(engine, data, next(work), tier);
    if (tier != Tier::kDirect) awaitDeviceEncoding(engine, data, work);
    timeOneCall(engine, data, next(work), tier);
    std::vector<FreshTimes> samples;
    std::size_t encoded_on_device = 0;
    std::vector<double> one_call;
    Tier served = tier;
    Progress progress(what, kSamples, false);
    context_.sample(kSamples, kSampleSeconds, [&] {
      const FreshRun run = timeFresh(engine, data, next(work), tier);
      samples.push_back(run.times);
      served = run.tier;
      encoded_on_device = run.program.info().encoded_on_device;
      one_call.push_back(timeOneCall(engine, data, next(work), tier).milliseconds);
      progress.advance();
      return run.times.total;
    });
    Json json = {{"tier", nameOf(served)}, {"encoded_on_device", encoded_on_device}};
    for (const auto& [key, member] : kTimes) {
      json[key] = Json::array();
      for (const FreshTimes& times : samples) json[key].push_back(times.*member);
    }
    std::vector<double> front_end;
    for (const FreshTimes& times : samples) front_end.push_back(times.passes + times.encoding);
    json["one_call_ms"] = one_call;
    add(what + ": token arrays to losses", "ms", std::move(one_call), target, nameOf(served));
    add(what + ": the same by compile() and loss()", "ms", json["total_ms"], {}, nameOf(served));
    add(what + ": of that, passes and encoding", "ms", std::move(front_end));
    add(what + ": evaluated again, kernels", "ms", json["again_kernels_ms"]);
    return json;
  }

  /// What encodes large populations on the device is made in the background.
  void awaitDeviceEncoding(const Engine& engine, const Dataset& data, const FreshWork& work) {
    if (work.kind != FreshKind::kSmall || !context_.onGpu() || context_.quick) return;
    const Stopwatch watch;
    while (timeFresh(engine, data, next(work), Tier::kInterpret).program.info().encoded_on_device == 0) {
      if (watch.seconds() > kMostSecondsToWait) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  }

  void add(std::string what, const char* unit, std::vector<double> samples, std::optional<Target> target = {},
           std::string note = {}) const {
    context_.report->add(kFreshPart, {std::move(what), unit, std::move(samples), target, std::move(note)});
  }

  /// One call with so many parts, whatever the engine would choose.
  Json divided(const BenchData& data, const FreshWork& work) {
    Json json = Json::array();
    for (const std::size_t parts : {1, 2, 3, 4, 8}) {
      EngineParts machine = EngineParts::ofMachine();
      machine.population_parts = parts;
      const Engine engine = must(createEngine(
          {.device = context_.device, .math = Math::kFast, .cache_directory = context_.cacheDirectory()}, machine));
      const Dataset uploaded = must(engine.upload(data.view()));
      const auto once = [&] { return timeOneCall(engine, uploaded, next(work), Tier::kAuto).milliseconds; };
      once();
      awaitDeviceEncoding(engine, uploaded, work);
      const std::vector<double> samples = context_.sample(kSamples, kSampleSeconds / 2, once);
      add(fmt::format("{}: token arrays to losses, in {} part{}", work.what(), parts, parts == 1 ? "" : "s"), "ms",
          samples);
      json.push_back({{"parts", parts}, {"one_call_ms", samples}});
    }
    return json;
  }

  Json frontEnd(const FreshWork& work) {
    const Engine engine = must(Engine::create(
        {.device = context_.device, .math = Math::kFast, .threads = 1, .cache_directory = context_.cacheDirectory()}));
    const std::size_t count = std::min(work.expressions, kFrontEndSample);
    const auto once = [&] { return frontEndNanoseconds(engine, source_.next(count)); };
    once();
    std::vector<double> samples = context_.sample(kSamples, kSampleSeconds / 2, once);
    add(fmt::format("{} {}, one thread: passes and encoding", count, work.name), "core-ns/token", samples,
        work.front_end_ns);
    return samples;
  }

  /// Each sample is a fresh generation, and one in which half of that one is kept, while its program is alive.
  Json halfKeptSeries(const Dataset& data, const FreshWork& work) {
    std::vector<double> fresh, half, ratios;
    context_.sample(kSamples, 2 * kSampleSeconds, [&] {
      const std::vector<Expression> last = next(work);
      const FreshRun before = timeFresh(engine_, data, last, Tier::kAuto);
      const NextGeneration generation = halfKept(last, next(work), ratios.size());
      const FreshRun after = timeFresh(engine_, data, generation.expressions, Tier::kAuto);
      compareKept(generation, after.losses, before.losses);
      fresh.push_back(before.times.total);
      half.push_back(after.times.total);
      ratios.push_back(after.times.total / before.times.total);
      return after.times.total;
    });
    const bool has_target = context_.onGpu() && !context_.quick;
    add(work.what() + ", half of them of the generation before: token arrays to losses", "ms", half);
    add(work.what() + ", half of them of the generation before: over a fresh generation", "times", ratios,
        has_target ? std::optional(atMost(kHalfKeptRatio)) : std::nullopt);
    return {{"fresh_ms", fresh}, {"half_kept_ms", half}, {"ratios", ratios}};
  }

  /// All cores of the machine that has the GPU.
  Json processor(const BenchData& data, const FreshWork& work) {
    const Engine engine = must(Engine::create({.device = "cpu", .math = Math::kFast}));
    return series(engine, must(engine.upload(data.view())), work, work.what() + ", on the processor", Tier::kAuto,
                  context_.quick ? std::nullopt : std::optional(atMost(kProcessorMilliseconds)));
  }

  const BenchContext& context_;
  const Engine engine_;
  const bool has_direct_;
  FreshSource source_{FreshKind::kSmall};  ///< of the present work; for all engines
};

}  // namespace

void benchFresh(const BenchContext& context) {
  BenchContext losses = context;
  losses.predictions = false;
  losses.losses = true;
  FreshBench(losses).run();
}

}  // namespace srjit
