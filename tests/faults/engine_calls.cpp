#include "tests/faults/engine_calls.h"

#include <map>
#include <memory>
#include <optional>

#include "tests/faults/callers_columns.h"
#include "tests/generators/token_arrays.h"

namespace srjit {
namespace {

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
  const EngineOptions options{.device = "cpu", .math = Math::kStrict, .tier = tier, .threads = 2};
  return engines.emplace(tier, Engine::create(options).value()).first->second;
}

std::shared_ptr<Ready> readyWith(World& world, const EngineOptions& options, Size size = {}) {
  auto ready = std::make_shared<Ready>();
  ready->w = arithmeticWorkload(31, size.expressions, size.rows, Precision::kF32, true);
  for (const Expression& expression : ready->w.expressions) ready->arrays.addPostfix(expression);
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

}  // namespace

Calls creation(World& world, const EngineOptions& options) {
  return [&world, options] {
    Outcome outcome;
    Result<Engine> engine = tried([&] { return world.machine.tryEngine(options); });
    if (outcome.isThere(engine)) outcome.numbers.push_back(engine->options().threads);
    dropped(std::move(engine));
    return outcome;
  };
}

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

Calls compilation(World& world, const EngineOptions& options, Size size) {
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

Calls predictions(World& world, const EngineOptions& options, Size size) {
  const auto ready = readyWithProgram(world, options, size);
  Outcome first;
  addPredictions(first, *ready, *ready->program);
  return [ready] {
    Outcome outcome;
    addPredictions(outcome, *ready, *ready->program);
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
                                       {.custom = build({Token::variable(0), Token::variable(1),
                                                         Token::operation(Op::kSub), Token::operation(Op::kAbs)})}};
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

}  // namespace srjit
