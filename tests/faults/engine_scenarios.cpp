// Scenarios of engines: on the CPU, on a model of a GPU, and on one of two; and those of expressions and passes.
#include <map>
#include <memory>
#include <optional>

#include "ir/text.h"
#include "ir/token_codes.h"
#include "passes/pass.h"
#include "passes/simplify_expression.h"
#include "runtime/platform/guarded.h"
#include "tests/faults/scenarios.h"
#include "tests/generators/token_arrays.h"
#include "tests/gpu_model/slow_machine.h"
#include "tests/runtime/pool/pooled_machine.h"

namespace srjit {
namespace {

/// Expressions for a scenario: few, since each of their allocations is a point.
struct Size {
  std::size_t expressions = 3, rows = 140;
};

/// What scenarios have ready before their calls.
struct Ready {
  Workload w;
  TokenArrays arrays;
  std::vector<float> out;
  std::optional<Engine> engine;
  std::optional<Dataset> data;
  std::optional<Program> program;
};

/// LLVM makes handlers for each engine on the CPU, which takes most of the time of a point, so all points share one.
const Engine& sharedCpuEngine(Tier tier) {
  static std::map<Tier, Engine> engines;
  const auto known = engines.find(tier);
  if (known != engines.end()) return known->second;
  const EngineOptions options{
      .device = "cpu", .math = Math::kStrict, .tier = tier, .threads = 2, .cache_directory = ""};
  return engines.emplace(tier, Engine::create(options).value()).first->second;
}

std::shared_ptr<Ready> readyWith(World& world, const EngineOptions& options, Size size = {}) {
  auto ready = std::make_shared<Ready>();
  ready->w = arithmeticWorkload(31, size.expressions, size.rows, Precision::kF32, true);
  ready->arrays = tokensOf(ready->w.expressions);
  ready->out.resize(size.expressions * size.rows);
  ready->engine = options.device == "cpu" ? sharedCpuEngine(options.tier) : world.machine.engine(options);
  ready->data = ready->engine->upload(ready->w.view()).value();
  return ready;
}

std::shared_ptr<Ready> readyWithProgram(World& world, const EngineOptions& options, Size size = {}) {
  auto ready = readyWith(world, options, size);
  ready->program = ready->engine->compile(ready->w.expressions);
  EXPECT_TRUE(ready->program->failures().empty());
  return ready;
}

std::vector<double> widened(std::span<const float> values) { return {values.begin(), values.end()}; }

void addPredictions(Outcome& outcome, Ready& ready, const Program& program) {
  const auto predicted = tried(
      [&] { return ready.engine->evaluate(program, *ready.data, ready.w.parameters, std::span<float>(ready.out)); });
  if (outcome.take(predicted)) outcome.add(widened(ready.out));
}

/// Numbers of fits that an error ended are those of the last pass before, so they are left out.
void add(Outcome& outcome, const Fits& fits) {
  outcome.add(fits.losses.failures);
  if (!fits.losses.failures.empty()) return;
  outcome.add(fits.losses.values);
  outcome.add(fits.parameters);
}

Calls creation(World& world, const EngineOptions& options) {
  return [&world, options] {
    Outcome outcome;
    Result<Engine> engine = tried([&] { return world.machine.tryEngine(options); });
    if (outcome.isThere(engine)) outcome.numbers.push_back(engine->options().threads);
    dropped(std::move(engine));
    return outcome;
  };
}

/// All of the life of an engine, from the first thread that it starts: data, a program, losses, a fit in flight.
Calls wholeLife(World& world, const EngineOptions& options) {
  const auto workload = std::make_shared<const Workload>(arithmeticWorkload(33, 70, 3000, Precision::kF32));
  return [&world, options, workload] {
    Outcome outcome;
    const LibraryScope library;
    const Result<Engine> engine = world.machine.tryEngine(options);
    if (!outcome.isThere(engine)) return outcome;
    const Result<Dataset> data = engine->upload(workload->view());
    if (!outcome.isThere(data)) return outcome;
    const Program program = engine->compile(workload->expressions);
    outcome.add(program.failures());
    auto fit = engine->submitFit(program, *data, workload->parameters, {.iterations = 1});
    outcome.take(engine->loss(program, *data, workload->parameters));
    std::vector<float> out(workload->expressions.size() * workload->rows());
    auto predictions = engine->submitEvaluate(program, *data, workload->parameters, std::span(out));
    if (outcome.isThere(predictions) && outcome.take(std::move(*predictions).result())) outcome.add(widened(out));
    if (!outcome.isThere(fit)) return outcome;
    const auto fitted = std::move(*fit).result();
    if (outcome.isThere(fitted)) outcome.add(fitted->losses.failures);
    return outcome;
  };
}

/// A new program of expressions, with its first losses and predictions.
Calls compilation(World& world, const EngineOptions& options, Size size = {}) {
  return [ready = readyWith(world, options, size)] {
    Outcome outcome;
    std::optional<Program> program = tried([&] { return ready->engine->compile(ready->w.expressions); });
    outcome.add(program->failures());
    if (outcome.take(tried([&] { return ready->engine->loss(*program, *ready->data, ready->w.parameters); }))) {
      addPredictions(outcome, *ready, *program);
    }
    dropped(std::move(program));
    return outcome;
  };
}

/// The same of token arrays, through Engine::compile and through Engine::loss of a population.
Calls tokenArrays(World& world, const EngineOptions& options) {
  world.machine.population_parts = 2;
  return [ready = readyWith(world, options)] {
    Outcome outcome;
    const Engine& engine = *ready->engine;
    Result<Program> program = tried([&] { return engine.compile(ready->arrays.view()); });
    if (outcome.isThere(program)) {
      outcome.add(program->failures());
      outcome.take(tried([&] { return engine.loss(*program, *ready->data, ready->w.parameters); }));
    }
    dropped(std::move(program));
    if (!outcome.errors.empty()) return outcome;
    outcome.take(tried([&] { return engine.loss(ready->arrays.view(), *ready->data, ready->w.parameters); }));
    return outcome;
  };
}

}  // namespace

Calls firstUse(World& world, const EngineOptions& options) {
  const auto workload = std::make_shared<const Workload>(arithmeticWorkload(34, 2, 100, Precision::kF32));
  return [&world, options, workload, view = workload->view()] {
    Outcome outcome;
    Result<Engine> engine = tried([&] { return world.machine.tryEngine(options); });
    if (!outcome.isThere(engine)) return outcome;
    Result<Dataset> data = tried([&] { return engine->upload(view); });
    if (outcome.isThere(data)) {
      std::optional<Program> program = tried([&] { return engine->compile(workload->expressions); });
      outcome.add(program->failures());
      outcome.take(tried([&] { return engine->loss(*program, *data, workload->parameters); }));
      dropped(std::move(program));
    }
    dropped(std::move(data));
    dropped(std::move(engine));
    return outcome;
  };
}

Calls predictions(World& world, const EngineOptions& options) {
  const auto ready = readyWithProgram(world, options);
  Outcome first;
  addPredictions(first, *ready, *ready->program);
  return [ready] {
    Outcome outcome;
    addPredictions(outcome, *ready, *ready->program);
    return outcome;
  };
}

namespace {

Calls uploads(World& world, const EngineOptions& options) {
  const auto ready = readyWithProgram(world, options);
  const std::vector<double> weights(ready->w.rows(), 0.5);
  return [ready, weights] {
    Outcome outcome;
    const Engine& engine = *ready->engine;
    const auto lossesOn = [&](const Result<Dataset>& data) {
      if (!outcome.isThere(data) || !outcome.errors.empty()) return;
      outcome.take(engine.loss(*ready->program, *data, ready->w.parameters));  // losses show what the data are
    };
    const auto view = ready->w.view();
    Result<Dataset> data = tried([&] { return engine.upload(view); });
    lossesOn(data);
    dropped(std::move(data));
    lossesOn(tried([&] { return engine.rows(*ready->data, 3, 100); }));
    lossesOn(tried([&] { return engine.sample(*ready->data, 1, 5); }));
    lossesOn(tried([&] { return engine.withWeights(*ready->data, weights); }));
    return outcome;
  };
}

Calls severalVectors(World& world, const EngineOptions& options) {
  const auto ready = readyWithProgram(world, options);
  std::vector<double> twice = ready->w.parameters;
  for (const double parameter : ready->w.parameters) twice.push_back(2 * parameter);
  return [ready, twice] {
    Outcome outcome;
    outcome.take(tried([&] { return ready->engine->loss(*ready->program, *ready->data, twice); }));
    return outcome;
  };
}

Calls losses(World& world, const EngineOptions& options) {
  const std::vector<LossOptions> kinds{{.kind = LossKind::kMse},
                                       {.kind = LossKind::kHuber, .nan = NanPolicy::kSkip},
                                       {.kind = LossKind::kScaledMse},
                                       lossBy("abs(f - y)")};
  return [ready = readyWithProgram(world, options), kinds] {
    Outcome outcome;
    for (const LossOptions& kind : kinds) {
      if (!outcome.take(
              tried([&] { return ready->engine->loss(*ready->program, *ready->data, ready->w.parameters, kind); })))
        return outcome;
    }
    return outcome;
  };
}

Calls gradients(World& world, const EngineOptions& options) {
  return [ready = readyWithProgram(world, options)] {
    Outcome outcome;
    const Engine& engine = *ready->engine;
    const auto gradients = tried([&] { return engine.gradient(*ready->program, *ready->data, ready->w.parameters); });
    if (!outcome.take(gradients)) return outcome;
    outcome.add(gradients->derivatives);
    std::vector<float> out(ready->w.parameters.size() * ready->w.rows());
    const auto jacobian = tried(
        [&] { return engine.jacobian(*ready->program, *ready->data, ready->w.parameters, std::span<float>(out)); });
    if (outcome.take(jacobian)) outcome.add(widened(out));
    return outcome;
  };
}

Calls fits(World& world, const EngineOptions& options) {
  return [ready = readyWithProgram(world, options)] {
    Outcome outcome;
    const FitOptions few{.iterations = 3};
    const auto fitted =
        tried([&] { return ready->engine->fit(*ready->program, *ready->data, ready->w.parameters, few); });
    if (outcome.isThere(fitted)) add(outcome, *fitted);
    return outcome;
  };
}

/// Evaluations in flight; some are dropped.
Calls flights(World& world, const EngineOptions& options) {
  const auto ready = readyWithProgram(world, options);
  const std::vector<float> none(ready->out.size());
  return [ready, none] {
    Outcome outcome;
    const Engine& engine = *ready->engine;
    const auto& [program, parameters] = std::tie(*ready->program, ready->w.parameters);
    std::vector<float> out = none, left = none;
    auto losses = tried([&] { return engine.submitLoss(program, *ready->data, parameters); });
    auto dropped_losses = tried([&] { return engine.submitLoss(program, *ready->data, parameters); });
    auto predictions = tried([&] { return engine.submitEvaluate(program, *ready->data, parameters, std::span(out)); });
    auto dropped_predictions =
        tried([&] { return engine.submitEvaluate(program, *ready->data, parameters, std::span(left)); });
    auto gradients = tried([&] { return engine.submitGradient(program, *ready->data, parameters); });
    dropped(std::move(dropped_losses));
    dropped(std::move(dropped_predictions));
    if (outcome.isThere(losses)) outcome.take(tried([&] { return std::move(*losses).result(); }));
    if (outcome.isThere(predictions)) {
      tried([&] { return predictions->wait(), true; });
      const auto given = tried([&] { return std::move(*predictions).result(); });
      if (outcome.take(given)) outcome.add(widened(out));
    }
    if (outcome.isThere(gradients)) {
      const auto given = tried([&] { return std::move(*gradients).result(); });
      if (outcome.take(given)) outcome.add(given->derivatives);
    }
    dropped(std::move(losses));
    dropped(std::move(predictions));
    dropped(std::move(gradients));
    return outcome;
  };
}

Calls fitsInFlight(World& world, const EngineOptions& options) {
  return [ready = readyWithProgram(world, options)] {
    Outcome outcome;
    const Engine& engine = *ready->engine;
    const FitOptions few{.iterations = 2};
    const auto submit = [&] { return engine.submitFit(*ready->program, *ready->data, ready->w.parameters, few); };
    auto fits = tried(submit);
    dropped(tried(submit));
    if (!outcome.isThere(fits)) return outcome;
    const auto fitted = tried([&] { return std::move(*fits).result(); });
    if (outcome.isThere(fitted)) add(outcome, *fitted);
    dropped(std::move(fits));
    return outcome;
  };
}

/// Generations of a search whose subtrees are kept.
Calls generations(World& world, const EngineOptions& options) {
  return [ready = readyWith(world, options)] {
    Outcome outcome;
    for (int generation = 0; generation < 3; ++generation) {
      std::optional<Program> program =
          tried([&] { return ready->engine->compile(ready->w.expressions, {.data = &*ready->data}); });
      outcome.add(program->failures());
      if (!outcome.take(tried([&] { return ready->engine->loss(*program, *ready->data, ready->w.parameters); })))
        return outcome;
      dropped(std::move(program));
    }
    return outcome;
  };
}

/// Columns and output in the memory of the GPU.
Calls deviceMemory(World& world, const EngineOptions& options) {
  struct Columns {
    Columns(FakeDriver& driver, std::size_t rows, std::size_t expressions)
        : columns(driver, rows, 5), target(driver, rows, 1), out(driver, rows, expressions) {}
    CallersColumns columns, target, out;
  };
  constexpr std::size_t kRows = 140, kExpressions = 3;
  const auto memory = std::make_shared<Columns>(world.machine.driver, kRows, kExpressions);
  return [memory, ready = readyWithProgram(world, options, {kExpressions, kRows})] {
    Outcome outcome;
    const Engine& engine = *ready->engine;
    Result<Dataset> data =
        tried([&] { return engine.adopt({.columns = memory->columns.matrix(), .target = memory->target.matrix()}); });
    if (!outcome.isThere(data)) return outcome;
    outcome.take(tried([&] { return engine.loss(*ready->program, *data, ready->w.parameters); }));
    // Predictions lie one expression behind another.
    DeviceMatrix out = memory->out.matrix();
    std::swap(out.rows, out.columns);
    std::swap(out.row_stride, out.column_stride);
    const auto predicted = tried([&] { return engine.evaluate(*ready->program, *data, ready->w.parameters, out); });
    if (outcome.take(predicted)) outcome.add(memory->out.read());
    dropped(std::move(data));
    return outcome;
  };
}

Calls deviceLosses(World& world, const EngineOptions& options) {
  const auto memory = std::make_shared<CallersArrays>(world.machine.driver);
  return [memory, ready = readyWith(world, options)] {
    Outcome outcome;
    const DeviceLossOptions of{.operators = {Op::kAdd, Op::kMul}, .expressions = 2};
    Result<DeviceLoss> loss = tried([&] { return ready->engine->deviceLoss(*ready->data, of); });
    if (!outcome.isThere(loss)) return outcome;
    const DevicePopulation population{.codes = memory->addresses[0],
                                      .values = memory->addresses[1],
                                      .tokens = 6,
                                      .expressions = 2,
                                      .offsets = memory->addresses[2]};
    const DeviceLossOutputs out{.losses = memory->addresses[3]};
    const Status put = tried([&] { return loss->submit(population, out, memory->streamNumber()); });
    const Status done = guarded([&] { return memory->stream.synchronize(), okStatus(); });
    if (put && done) {
      outcome.add(memory->losses());
    } else {
      outcome.errors.push_back(put ? done.error() : put.error());
      outcome.is_cut = true;
    }
    dropped(std::move(loss));
    return outcome;
  };
}

/// A population of the host that lanes encode, but for one long expression.
Calls asWritten(World& world, const EngineOptions& options) {
  const auto ready = readyWith(world, options, {1'024, 33});
  ready->arrays.addPostfix(chainOf(150, [](std::uint32_t i) { return i % 5; }, [](std::uint32_t) { return Op::kAdd; }));
  EXPECT_TRUE(ready->engine->deviceLoss(*ready->data, {.operators = {Op::kAdd}, .expressions = 1}));
  return [ready] {
    Outcome outcome;
    const CompileOptions as_written{.tier = Tier::kInterpret, .simplify = false};
    outcome.take(tried(
        [&] { return ready->engine->loss(ready->arrays.view(), *ready->data, ready->w.parameters, {}, as_written); }));
    return outcome;
  };
}

EngineOptions onCpu(Tier tier = Tier::kInterpret) { return {.device = "cpu", .math = Math::kStrict, .tier = tier}; }

/// Parses, prints and simplifies; each form gives its own tokens back.
Calls texts(World&) {
  return [] {
    Outcome outcome;
    const ColumnNames names = tried([] { return ColumnNames({"mass", "speed"}); });
    const std::string_view text = "mass * speed^2 / 2 + sin(0.5 * speed + p0) - (mass - mass)";
    const Result<Expression> read = tried([&] { return parse(text, Language::kInfix, names); });
    if (!outcome.isThere(read)) return outcome;
    for (const Language language : {Language::kInfix, Language::kPostfix, Language::kPrefix, Language::kJson}) {
      const std::string printed = tried([&] { return print(*read, language, names); });
      const Result<Expression> again = tried([&] { return parse(printed, language, names); });
      if (outcome.isThere(again)) outcome.numbers.push_back(*again == *read ? 1 : 0);
    }
    const Expression simple = tried([&] { return simplify(*read); });
    outcome.numbers.push_back(static_cast<double>(simple.tokens().size()));
    const Result<Pipeline> passes = tried([] { return Pipeline::parse("simplify,fma", Math::kPrecise); });
    if (outcome.isThere(passes)) outcome.numbers.push_back(1);
    return outcome;
  };
}

FakeOptions noGpu() { return {}; }

EngineOptions keptOnCpu(World& world) {
  EngineOptions options = onCpu();
  options.cache_directory = world.scratch.path("cache");
  return options;
}

/// The first use of an engine whose code another one has kept.
Calls useOfKept(World& world) {
  const Calls calls = firstUse(world, keptOnCpu(world));
  calls();
  return calls;
}

constexpr Scenario kHostScenarios[] = {
    {"Texts", kMemory, texts, noGpu, true},
    {"CpuEngine", kMemory, [](World& w) { return creation(w, onCpu()); }},
    {"CpuWholeLife", kThreads, [](World& w) { return wholeLife(w, onCpu()); }, noGpu, true},
    {"CpuFirstUse", kMemory | kCode, [](World& w) { return firstUse(w, onCpu()); }, noGpu, true},
    {"CpuKeepsCode", kFiles | kNames | kOpens | kLocks | kFolders, [](World& w) { return firstUse(w, keptOnCpu(w)); }},
    {"CpuKeptCode", kMemory | kReads | kOpens | kCode, useOfKept, noGpu, true},
    {"CpuUploads", kMemory, [](World& w) { return uploads(w, onCpu()); }},
    {"CpuInterpreted", kMemory, [](World& w) { return compilation(w, onCpu()); }, noGpu, true},
    {"CpuCompiled", kMemory | kCode, [](World& w) { return compilation(w, onCpu(Tier::kCompile)); }, noGpu, true},
    {"CpuTokenArrays", kMemory, [](World& w) { return tokenArrays(w, onCpu()); }, noGpu, true},
    {"CpuPredictions", kMemory, [](World& w) { return predictions(w, onCpu()); }},
    {"CpuLosses", kMemory, [](World& w) { return losses(w, onCpu()); }},
    {"CpuGradients", kMemory, [](World& w) { return gradients(w, onCpu()); }},
    {"CpuFits", kMemory, [](World& w) { return fits(w, onCpu()); }},
    {"CpuFlights", kMemory, [](World& w) { return flights(w, onCpu()); }},
    {"CpuFitsInFlight", kMemory, [](World& w) { return fitsInFlight(w, onCpu()); }},
};

constexpr unsigned kStart = kMemory | kGpu, kOfGpu = kStart | kKernels;

EngineOptions onGpu(Tier tier = Tier::kInterpret) { return {.device = "cuda:0", .math = Math::kStrict, .tier = tier}; }
EngineOptions onPool() { return {.device = "cuda:all", .math = Math::kStrict, .tier = Tier::kInterpret}; }

/// Work lags behind, as on a real device: a missing wait gives other numbers.
FakeOptions oneGpu() { return {.lag = true}; }
FakeOptions twoGpus() { return manyDevices(2); }

/// With writeSlowFacts() in the world's folder.
EngineOptions withFacts(World& world, Tier tier) {
  EngineOptions options = onGpu(tier);
  options.cache_directory = world.scratch.path("");
  writeSlowFacts(world.machine, *options.cache_directory, options.precision, options.math);
  return options;
}

Calls streamed(World& world) {
  EngineOptions options = onGpu();
  options.device_bytes = 1;
  return compilation(world, options, {.expressions = 2, .rows = 4200});
}

Calls keptSubtrees(World& world) {
  EngineOptions options = withFacts(world, Tier::kInterpret);
  options.subtree_bytes = std::uint64_t{1} << 20;
  return generations(world, options);
}

Calls streamedByAll(World& world) {
  EngineOptions options = onPool();
  options.device_bytes = 100'000;
  return compilation(world, options, {.expressions = 2, .rows = 4096 + 100});
}

constexpr Scenario kGpuScenarios[] = {
    {"GpuEngine", kStart | kCodes, [](World& w) { return creation(w, onGpu()); }, oneGpu},
    {"GpuAnyEngine", kStart, [](World& w) { return creation(w, {.device = "auto"}); }, oneGpu},
    {"GpuWholeLife", kThreads, [](World& w) { return wholeLife(w, onGpu()); }, oneGpu, true},
    {"PoolWholeLife", kThreads, [](World& w) { return wholeLife(w, onPool()); }, twoGpus, true},
    {"GpuUploads", kStart | kCodes, [](World& w) { return uploads(w, onGpu()); }, oneGpu},
    {"GpuInterpreted", kOfGpu | kCodes, [](World& w) { return compilation(w, onGpu()); }, oneGpu, true},
    {"GpuCompiled", kOfGpu, [](World& w) { return compilation(w, onGpu(Tier::kCompile)); }, oneGpu, true},
    {"GpuDirect", kOfGpu, [](World& w) { return compilation(w, withFacts(w, Tier::kDirect)); }, oneGpu, true},
    {"GpuAuto", kOfGpu, [](World& w) { return compilation(w, onGpu(Tier::kAuto)); }, oneGpu, true},
    {"GpuTokenArrays", kOfGpu, [](World& w) { return tokenArrays(w, onGpu()); }, oneGpu, true},
    {"GpuPredictions", kOfGpu, [](World& w) { return predictions(w, onGpu()); }, oneGpu},
    {"GpuSeveralVectors", kOfGpu, [](World& w) { return severalVectors(w, onGpu()); }, oneGpu},
    {"GpuLosses", kOfGpu, [](World& w) { return losses(w, onGpu()); }, oneGpu},
    {"GpuGradients", kOfGpu, [](World& w) { return gradients(w, onGpu()); }, oneGpu},
    {"GpuFits", kOfGpu, [](World& w) { return fits(w, onGpu()); }, oneGpu},
    {"GpuFlights", kOfGpu | kCodes, [](World& w) { return flights(w, onGpu()); }, oneGpu},
    {"GpuFitsInFlight", kOfGpu, [](World& w) { return fitsInFlight(w, onGpu()); }, oneGpu},
    {"GpuStreamed", kOfGpu, streamed, oneGpu, true},
    {"GpuKeptSubtrees", kOfGpu, keptSubtrees, oneGpu, true},
    {"GpuDeviceMemory", kOfGpu, [](World& w) { return deviceMemory(w, onGpu()); }, oneGpu},
    {"GpuDeviceLosses", kOfGpu, [](World& w) { return deviceLosses(w, onGpu()); }, oneGpu},
    {"GpuAsWritten", kOfGpu, [](World& w) { return asWritten(w, onGpu()); }, oneGpu},
    {"PoolEngine", kStart, [](World& w) { return creation(w, onPool()); }, twoGpus},
    {"PoolUploads", kStart, [](World& w) { return uploads(w, onPool()); }, twoGpus},
    {"PoolCompilation", kOfGpu, [](World& w) { return compilation(w, onPool()); }, twoGpus, true},
    {"PoolFlights", kOfGpu, [](World& w) { return flights(w, onPool()); }, twoGpus},
    {"PoolFits", kOfGpu, [](World& w) { return fits(w, onPool()); }, twoGpus},
    {"PoolStreamed", kOfGpu, streamedByAll, twoGpus, true},
};

}  // namespace

std::span<const Scenario> hostScenarios() { return kHostScenarios; }
std::span<const Scenario> gpuScenarios() { return kGpuScenarios; }

}  // namespace srjit
