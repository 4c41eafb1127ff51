// Scenarios of the interface for C, on the CPU and on a model of a GPU.
#include <array>

#include "runtime/c_api/handles.h"
#include "tests/faults/callers_columns.h"
#include "tests/faults/scenarios.h"
#include "tests/runtime/c_api/owned.h"

namespace srjit {
namespace {

using c_api::Owned;

template <class T>
T sizedStruct() {
  T value{};
  value.size = sizeof value;
  return value;
}

/// Runs `call`, of the library, with a srjit_error, and adds what failed.
template <class Call>
bool succeeds(Outcome& outcome, const Call& call) {
  auto error = sizedStruct<srjit_error>();
  const std::int32_t code = tried([&] { return call(&error); });
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
  srjit_matrix columns = sizedStruct<srjit_matrix>(), target = sizedStruct<srjit_matrix>();
  srjit_data view = sizedStruct<srjit_data>();
};

/// What a program and its evaluations need; freed with faults.
struct Objects {
  Owned<srjit_tokens> tokens;
  Owned<srjit_dataset> data;
  Owned<srjit_program> program;
  Owned<srjit_pending> pending;
};

template <class T, class Call>
bool makes(Outcome& outcome, Owned<T>& to, const Call& call) {
  T* object = nullptr;
  const bool is_made = succeeds(outcome, [&](srjit_error* error) { return call(&object, error); });
  EXPECT_EQ(is_made, object != nullptr);
  to.reset(object);
  return is_made;
}

bool prepares(Outcome& outcome, const Caller& caller, Objects& made) {
  static constexpr std::array<const char*, 3> kTexts = {"x0 * p0 + x1", "abs(x1) - p0", "x0 * x0 - 1.5 * x1"};
  srjit_failures* failures = nullptr;
  const bool is_parsed = makes(outcome, made.tokens, [&](srjit_tokens** to, srjit_error* error) {
    return srjit_parse(kTexts.data(), kTexts.size(), SRJIT_TEXT_INFIX, nullptr, 0, to, &failures, error);
  });
  addFailures(outcome, failures);
  return is_parsed &&
         makes(outcome, made.data,
               [&](srjit_dataset** to, srjit_error* error) {
                 return srjit_dataset_create(caller.engine.get(), &caller.view, to, error);
               }) &&
         makes(outcome, made.program, [&](srjit_program** to, srjit_error* error) {
           return srjit_compile_tokens(caller.engine.get(), made.tokens.get(), nullptr, to, error);
         });
}

void evaluates(Outcome& outcome, const Caller& caller, Objects& made) {
  constexpr std::size_t kParameters = 2, kExpressions = 3;
  const std::array<double, kParameters> parameters = {0.5, -1};
  std::array<double, kExpressions> values{};
  auto losses = sizedStruct<srjit_losses>();
  losses.count = values.size();
  losses.values = values.data();
  const auto take = [&](bool is_given) {
    addFailures(outcome, std::exchange(losses.failures, nullptr));
    if (is_given) outcome.add(values);
  };
  const srjit_engine* const engine = caller.engine.get();
  take(succeeds(outcome, [&](srjit_error* error) {
    return srjit_loss(engine, made.program.get(), made.data.get(), parameters.data(), kParameters, nullptr, &losses,
                      error);
  }));
  take(succeeds(outcome, [&](srjit_error* error) {
    return srjit_gradient(engine, made.program.get(), made.data.get(), parameters.data(), kParameters, nullptr, &losses,
                          error);
  }));
  std::vector<float> out(kExpressions * Caller::kRows);
  srjit_failures* failures = nullptr;
  const bool is_predicted = succeeds(outcome, [&](srjit_error* error) {
    return srjit_predict(engine, made.program.get(), made.data.get(), parameters.data(), kParameters, SRJIT_F32,
                         out.data(), out.size(), &failures, error);
  });
  addFailures(outcome, failures);
  if (is_predicted) outcome.add(std::vector<double>(out.begin(), out.end()));
  std::vector<double> starts(2 * kParameters);
  const bool is_drawn = succeeds(outcome, [&](srjit_error* error) {
    return srjit_program_draw_starts(made.program.get(), parameters.data(), kParameters, 2, 1, starts.data(), error);
  });
  if (is_drawn) outcome.add(starts);
  const bool is_submitted = makes(outcome, made.pending, [&](srjit_pending** to, srjit_error* error) {
    return srjit_submit_loss(engine, made.program.get(), made.data.get(), parameters.data(), kParameters, nullptr, to,
                             error);
  });
  if (!is_submitted) return;
  take(succeeds(outcome, [&](srjit_error* error) { return srjit_pending_losses(made.pending.get(), &losses, error); }));
}

Calls callsInC(World& world, const EngineOptions& options) {
  // One engine on the CPU for all points, as in engine_calls.cpp.
  static const Engine cpu = Engine::create({.device = "cpu", .math = Math::kStrict, .threads = 2}).value();
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
  auto matrix = sizedStruct<srjit_matrix>();
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
  const auto take = [&](const CallersColumns& memory, const auto& call) {
    const srjit_matrix out = matrixAt(memory.matrix());
    srjit_failures* failures = nullptr;
    const bool is_done = succeeds(outcome, [&](srjit_error* error) { return call(&out, &failures, error); });
    addFailures(outcome, failures);
    if (is_done) outcome.add(memory.read());
  };
  take(predictions, [&](const srjit_matrix* out, srjit_failures** failures, srjit_error* error) {
    return srjit_predict_on_device(caller.engine.get(), made.program.get(), made.data.get(), kParameters.data(),
                                   kParameters.size(), out, 0, failures, error);
  });
  take(derivatives, [&](const srjit_matrix* out, srjit_failures** failures, srjit_error* error) {
    return srjit_jacobian_on_device(caller.engine.get(), made.program.get(), made.data.get(), kParameters.data(),
                                    kParameters.size(), SRJIT_BY_PARAMETERS, out, 0, failures, error);
  });
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

constexpr Scenario kCScenarios[] = {
    {"CpuInC", kMemory, [](World& w) { return callsInC(w, {.device = "cpu", .tier = Tier::kInterpret}); }},
    {"GpuInC", kMemory | kGpu | kKernels, [](World& w) { return callsInC(w, gpuOfC()); }, lagging},
    {"GpuDeviceMemoryInC", kMemory | kGpu | kKernels, deviceMemoryInC, lagging},
};

}  // namespace

std::span<const Scenario> cScenarios() { return kCScenarios; }

}  // namespace srjit
