// Scenarios of the interface for C, on the CPU and on a model of a GPU.
#include <array>

#include "runtime/c_api/handles.h"
#include "tests/faults/scenarios.h"
#include "tests/runtime/c_api/owned.h"

namespace srjit {
namespace {

using c_api::Owned;

/// Calls the library with these arguments and a srjit_error, and adds what failed.
template <class... Parameters, class... Arguments>
bool succeeds(Outcome& outcome, std::int32_t (*call)(Parameters...), const Arguments&... arguments) {
  auto error = c_api::sized<srjit_error>();
  const std::int32_t code = tried([&] { return call(arguments..., &error); });
  if (code == SRJIT_OK) return true;
  EXPECT_EQ(code, error.code);
  outcome.errors.push_back({static_cast<Errc>(code - 1), error.message, {}});
  outcome.is_cut = true;
  return false;
}

/// Adds failures of expressions, which are the caller's to free.
void addFailures(Outcome& outcome, srjit_failures* list) {
  const Owned<srjit_failures> owned(list);
  for (const Failure& failure : list == nullptr ? std::vector<Failure>() : list->list) {
    outcome.errors.push_back(failure.error);
  }
}

/// What a caller in C has: an engine, and its own arrays.
struct Caller {
  static constexpr std::size_t kRows = 60;

  explicit Caller(const Engine& from) : engine(new srjit_engine{from}) {
    for (std::size_t r = 0; r < kRows; ++r) {
      x.push_back(static_cast<float>(r) * 0.25F);
      x.push_back(static_cast<float>(r % 7) - 2);
      y.push_back(static_cast<float>(2 * r % 11));
    }
    columns.data = x.data();
    columns.rows = target.rows = kRows;
    columns.columns = 2;
    columns.row_stride = 2 * sizeof(float);
    columns.type = target.type = SRJIT_F32;
    columns.column_stride = sizeof(float);
    target.data = y.data();
    target.columns = 1;
    view.columns = &columns;
    view.target = &target;
  }

  Owned<srjit_engine> engine;
  std::vector<float> x, y;
  srjit_matrix columns = c_api::sized<srjit_matrix>(), target = c_api::sized<srjit_matrix>();
  srjit_data view = c_api::sized<srjit_data>();
};

/// What a program and its evaluations need; freed with faults.
struct Objects {
  Owned<srjit_tokens> tokens;
  Owned<srjit_dataset> data;
  Owned<srjit_program> program;
  Owned<srjit_pending> pending;
};

/// The same of a call whose last argument but the error is the object that it makes.
template <class T, class... Parameters, class... Arguments>
bool makes(Outcome& outcome, Owned<T>& to, std::int32_t (*call)(Parameters...), const Arguments&... arguments) {
  T* object = nullptr;
  const bool is_made = succeeds(outcome, call, arguments..., &object);
  EXPECT_EQ(is_made, object != nullptr);
  to.reset(object);
  return is_made;
}

bool prepares(Outcome& outcome, const Caller& caller, Objects& made) {
  static constexpr std::array<const char*, 3> kTexts = {"x0 * p0 + x1", "abs(x1) - p0", "x0 * x0 - 1.5 * x1"};
  srjit_tokens* tokens = nullptr;
  srjit_failures* failures = nullptr;
  const bool is_parsed =
      succeeds(outcome, srjit_parse, kTexts.data(), kTexts.size(), SRJIT_TEXT_INFIX, nullptr, 0, &tokens, &failures);
  made.tokens.reset(tokens);
  addFailures(outcome, failures);
  const srjit_engine* const engine = caller.engine.get();
  return is_parsed && makes(outcome, made.data, srjit_dataset_create, engine, &caller.view) &&
         makes(outcome, made.program, srjit_compile_tokens, engine, made.tokens.get(), nullptr);
}

void evaluates(Outcome& outcome, const Caller& caller, Objects& made) {
  constexpr std::size_t kParameters = 2, kExpressions = 3;
  const std::array<double, kParameters> parameters = {0.5, -1};
  std::array<double, kExpressions> values{};
  auto losses = c_api::sized<srjit_losses>();
  losses.count = values.size();
  losses.values = values.data();
  const auto take = [&](bool is_given) {
    addFailures(outcome, std::exchange(losses.failures, nullptr));
    if (is_given) outcome.add(values);
  };
  const srjit_engine* const engine = caller.engine.get();
  const auto& [program, data] = std::pair(made.program.get(), made.data.get());
  const double* const numbers = parameters.data();
  take(succeeds(outcome, srjit_loss, engine, program, data, numbers, kParameters, nullptr, &losses));
  take(succeeds(outcome, srjit_gradient, engine, program, data, numbers, kParameters, nullptr, &losses));
  std::vector<float> out(kExpressions * Caller::kRows);
  srjit_failures* failures = nullptr;
  const bool is_predicted = succeeds(outcome, srjit_predict, engine, program, data, numbers, kParameters, SRJIT_F32,
                                     out.data(), out.size(), &failures);
  addFailures(outcome, failures);
  if (is_predicted) outcome.add(std::vector<double>(out.begin(), out.end()));
  std::vector<double> starts(2 * kParameters);
  if (succeeds(outcome, srjit_program_draw_starts, program, numbers, kParameters, 2, 1, starts.data())) {
    outcome.add(starts);
  }
  if (!makes(outcome, made.pending, srjit_submit_loss, engine, program, data, numbers, kParameters, nullptr)) return;
  take(succeeds(outcome, srjit_pending_losses, made.pending.get(), &losses));
}

Calls callsInC(World& world, const EngineOptions& options) {
  // One engine on the CPU for all points, as in engine_scenarios.cpp.
  static const Engine cpu =
      Engine::create({.device = "cpu", .math = Math::kStrict, .threads = 2, .cache_directory = ""}).value();
  const Engine engine = options.device == "cpu" ? cpu : world.machine.engine(options);
  return [caller = std::make_shared<const Caller>(engine)] {
    Outcome outcome;
    Objects made;
    if (prepares(outcome, *caller, made)) evaluates(outcome, *caller, made);
    dropped(std::move(made));
    return outcome;
  };
}

srjit_matrix matrixAt(const DeviceMatrix& memory) {
  auto matrix = c_api::sized<srjit_matrix>();
  matrix.data = reinterpret_cast<const void*>(memory.pointer);  // NOLINT(performance-no-int-to-ptr)
  matrix.rows = memory.rows;
  matrix.columns = memory.columns;
  matrix.type = SRJIT_F32;
  matrix.on_device = 1;
  return matrix;
}

void fillsDeviceMemory(Outcome& outcome, const Caller& caller, const Objects& made, const CallersColumns& predictions,
                       const CallersColumns& derivatives) {
  constexpr std::array<double, 2> kParameters = {0.5, -1};
  const auto take = [&](const CallersColumns& memory, const auto& call, const auto&... by) {
    const srjit_matrix out = matrixAt(memory.matrix());
    srjit_failures* failures = nullptr;
    const bool is_done = succeeds(outcome, call, caller.engine.get(), made.program.get(), made.data.get(),
                                  kParameters.data(), kParameters.size(), by..., &out, 0, &failures);
    addFailures(outcome, failures);
    if (is_done) outcome.add(memory.read());
  };
  take(predictions, srjit_predict_on_device);
  take(derivatives, srjit_jacobian_on_device, SRJIT_BY_PARAMETERS);
}

EngineOptions gpuOfC() { return {.device = "cuda:0", .math = Math::kStrict, .tier = Tier::kInterpret}; }
FakeOptions lagging() { return {.lag = true}; }

Calls deviceMemoryInC(World& world) {
  struct Memory {
    explicit Memory(FakeDriver& driver)
        : predictions(driver, Caller::kRows, 3), derivatives(driver, Caller::kRows, 2) {}
    CallersColumns predictions, derivatives;
  };
  return [memory = std::make_shared<const Memory>(world.machine.driver),
          caller = std::make_shared<const Caller>(world.machine.engine(gpuOfC()))] {
    Outcome outcome;
    Objects made;
    if (prepares(outcome, *caller, made)) {
      fillsDeviceMemory(outcome, *caller, made, memory->predictions, memory->derivatives);
    }
    dropped(std::move(made));
    return outcome;
  };
}

void fillsDeviceLosses(Outcome& outcome, const CallersArrays& memory, const srjit_device_loss* loss) {
  auto population = c_api::sized<srjit_device_population>();
  population.codes = memory.addresses[0];
  population.values = memory.addresses[1];
  population.tokens = 6;
  population.expressions = 2;
  population.offsets = memory.addresses[2];
  auto out = c_api::sized<srjit_device_loss_outputs>();
  out.losses = memory.addresses[3];
  const bool is_put = succeeds(outcome, srjit_device_loss_submit, loss, &population, &out, memory.streamNumber());
  const Status done = guarded([&] { return memory.stream.synchronize(), okStatus(); });
  if (is_put && outcome.isThere(done)) outcome.add(memory.losses());
}

Calls deviceLossesInC(World& world) {
  return [memory = std::make_shared<const CallersArrays>(world.machine.driver),
          caller = std::make_shared<const Caller>(world.machine.engine(gpuOfC()))] {
    Outcome outcome;
    Owned<srjit_dataset> data;
    Owned<srjit_device_loss> loss;
    const std::array<std::int32_t, 2> operators = {codeOf(Op::kAdd), codeOf(Op::kMul)};
    auto options = c_api::sized<srjit_device_loss_options>();
    options.operators = operators.data();
    options.operator_count = operators.size();
    options.expressions = 2;
    const srjit_engine* const engine = caller->engine.get();
    if (makes(outcome, data, srjit_dataset_create, engine, &caller->view) &&
        makes(outcome, loss, srjit_device_loss_create, engine, data.get(), &options)) {
      fillsDeviceLosses(outcome, *memory, loss.get());
    }
    dropped(std::move(loss));
    dropped(std::move(data));
    return outcome;
  };
}

constexpr Scenario kCScenarios[] = {
    {"CpuInC", kMemory, [](World& w) { return callsInC(w, {.device = "cpu", .tier = Tier::kInterpret}); }},
    {"GpuInC", kMemory | kGpu | kKernels, [](World& w) { return callsInC(w, gpuOfC()); }, lagging},
    {"GpuDeviceMemoryInC", kMemory | kGpu | kKernels, deviceMemoryInC, lagging},
    {"GpuDeviceLossesInC", kMemory | kGpu | kKernels, deviceLossesInC, lagging},
};

}  // namespace

std::span<const Scenario> cScenarios() { return kCScenarios; }

}  // namespace srjit
