#include "runtime/engine.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <tbb/task_arena.h>

#include "runtime/cost_model.h"
#include "runtime/dataset.h"
#include "runtime/host_batches.h"
#include "runtime/host_run.h"
#include "runtime/loss_value.h"
#include "runtime/program.h"

namespace srjit {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Status checkDevice(const std::string& device) {
  if (device == "auto" || device == "cpu") return okStatus();
  unsigned ordinal = 0;
  constexpr std::string_view kPrefix = "cuda:";
  if (device.starts_with(kPrefix)) {
    const auto [end, error] = std::from_chars(device.data() + kPrefix.size(), device.data() + device.size(), ordinal);
    if (error == std::errc() && end == device.data() + device.size()) {
      return Error{Errc::kMachine, fmt::format("device {}, but this build evaluates on the CPU only", device), {}};
    }
  }
  return Error{Errc::kInvalid, fmt::format("device '{}', expected auto, cpu or cuda:N", device), {}};
}

Status checkProgram(const Program& program, const Dataset& data, std::span<const double> parameters,
                    const EngineOptions& engine) {
  const auto mismatch = [](const char* what, auto other, auto own) {
    return Error{
        Errc::kInvalid, fmt::format("{} in {}, but the engine computes in {}", what, nameOf(other), nameOf(own)), {}};
  };
  const Program::State& made = program.state();
  if (made.precision != engine.precision) return mismatch("a program", made.precision, engine.precision);
  if (made.math != engine.math) return mismatch("a program", made.math, engine.math);
  if (data.state().precision != engine.precision) return mismatch("data", data.state().precision, engine.precision);
  const std::size_t expected = program.parameterOffset(program.size());
  if (parameters.size() != expected) {
    return Error{Errc::kInvalid, fmt::format("{} parameters, but the program has {}", parameters.size(), expected), {}};
  }
  return okStatus();
}

/// The batches that the data can feed, in at most two sets: those of the program, and fresh ones for the expressions
/// whose batch held a bad one.
struct Feasible {
  std::vector<const HostBatch*> batches;
  std::unique_ptr<const HostBatches> fresh;
  std::vector<Failure> failures;
};

Feasible findFeasible(const Program::State& program, std::size_t columns, const std::shared_ptr<HostJit>& jit) {
  Feasible result{.batches = {}, .fresh = nullptr, .failures = program.failures};
  if (program.batches == nullptr) return result;
  const auto fits = [&](std::uint32_t expression) {
    return program.expressions[expression].variableCount() <= columns;
  };
  std::vector<std::uint32_t> orphans;
  for (const HostBatch& batch : program.batches->batches()) {
    if (program.variables <= columns || std::all_of(batch.expressions.begin(), batch.expressions.end(), fits)) {
      result.batches.push_back(&batch);
      continue;
    }
    for (const std::uint32_t expression : batch.expressions) {
      if (fits(expression)) {
        orphans.push_back(expression);
        continue;
      }
      const std::string message =
          fmt::format("variable x{}, but the data has {} column{}", program.expressions[expression].variableCount() - 1,
                      columns, columns == 1 ? "" : "s");
      result.failures.push_back({expression, Error{Errc::kInvalid, message, {}}});
    }
  }
  if (!orphans.empty()) {
    result.fresh =
        std::make_unique<HostBatches>(jit, HostRequest{program.expressions, program.parameter_offsets,
                                                       std::move(orphans), program.pipeline, Tier::kInterpret});
    result.failures.insert(result.failures.end(), result.fresh->failures().begin(), result.fresh->failures().end());
  }
  std::sort(result.failures.begin(), result.failures.end(),
            [](const Failure& a, const Failure& b) { return a.expression < b.expression; });
  return result;
}

}  // namespace

struct Engine::State {
  State(const EngineOptions& given, unsigned threads, std::shared_ptr<HostJit> host_jit)
      : options(given), arena(static_cast<int>(threads)), jit(std::move(host_jit)) {
    options.threads = threads;
  }

  EngineOptions options;
  tbb::task_arena arena;
  std::shared_ptr<HostJit> jit;

  /// Calls run(HostRun) for every set of feasible batches, inside the arena, and returns the failures.
  template <class Run>
  std::vector<Failure> forEachRun(const Program::State& program, const Dataset::State& data,
                                  std::span<const double> parameters, const Run& run) {
    return arena.execute([&] {
      Feasible feasible = findFeasible(program, data.columns, jit);
      const auto execute = [&](const HostBatches& all, std::vector<const HostBatch*> batches) {
        AlignedBuffer storage;
        run(HostRun(all, std::move(batches), data, all.parameterTable(parameters, storage), options.threads));
      };
      if (!feasible.batches.empty()) execute(*program.batches, std::move(feasible.batches));
      if (feasible.fresh != nullptr) {
        std::vector<const HostBatch*> batches;
        for (const HostBatch& batch : feasible.fresh->batches()) batches.push_back(&batch);
        execute(*feasible.fresh, std::move(batches));
      }
      return std::move(feasible.failures);
    });
  }

  template <class T>
  Result<std::vector<Failure>> evaluate(const Program& program, const Dataset& data, std::span<const double> parameters,
                                        std::span<T> out) {
    const Precision element = sizeof(T) == sizeof(float) ? Precision::kF32 : Precision::kF64;
    if (element != options.precision) {
      return Error{
          Errc::kInvalid,
          fmt::format("output in {}, but the engine computes in {}", nameOf(element), nameOf(options.precision)),
          {}};
    }
    if (Status valid = checkProgram(program, data, parameters, options); !valid) {
      return std::move(valid).error();
    }
    if (out.size() != program.size() * data.rows()) {
      return Error{Errc::kInvalid,
                   fmt::format("output of {} numbers, expected {} expressions x {} rows", out.size(), program.size(),
                               data.rows()),
                   {}};
    }
    std::vector<Failure> failures = forEachRun(program.state(), data.state(), parameters, [&](const HostRun& run) {
      run.evaluate(reinterpret_cast<std::byte*>(out.data()));
    });
    for (const Failure& failure : failures) {
      const auto row = out.subspan(failure.expression * data.rows(), data.rows());
      std::fill(row.begin(), row.end(), static_cast<T>(kNaN));
    }
    return failures;
  }

  Result<Losses> loss(const Program& program, const Dataset& data, std::span<const double> parameters,
                      const LossOptions& loss_options) {
    if (Status valid = checkProgram(program, data, parameters, options); !valid) {
      return std::move(valid).error();
    }
    if (data.state().target == nullptr) return Error{Errc::kInvalid, "a loss of data without a target", {}};
    const LossSpec spec = lossSpec(loss_options, data.state().weights != nullptr);
    const auto kernel = jit->loss(spec);
    if (!kernel) return kernel.error();
    std::vector<LossSums> sums(program.size());
    Losses losses;
    losses.failures = forEachRun(program.state(), data.state(), parameters,
                                 [&](const HostRun& run) { run.loss(*kernel, spec, sums); });
    losses.values.reserve(sums.size());
    losses.valid_rows.reserve(sums.size());
    for (const LossSums& sum : sums) {
      losses.values.push_back(lossValue(sum, data.state().target_variance, loss_options));
      losses.valid_rows.push_back(sum.valid);
    }
    for (const Failure& failure : losses.failures) losses.values[failure.expression] = kNaN;
    return losses;
  }
};

Engine::Engine(std::shared_ptr<State> state) : state_(std::move(state)) {}

Result<Engine> Engine::create(const EngineOptions& options) {
  return withinMemory([&]() -> Result<Engine> {
    if (Status device = checkDevice(options.device); !device) return std::move(device).error();
    if (options.threads > kMaxThreads) {
      return Error{Errc::kInvalid, fmt::format("{} threads, expected at most {}", options.threads, kMaxThreads), {}};
    }
    auto jit = HostJit::create(options.precision, options.math);
    if (!jit) return std::move(jit).error();
    // oneTBB prints a warning when an arena wants more threads than there are.
    const auto available = static_cast<unsigned>(tbb::this_task_arena::max_concurrency());
    const unsigned threads = options.threads != 0 ? std::min(options.threads, available) : available;
    return Engine(std::make_shared<State>(options, threads, std::shared_ptr<HostJit>(std::move(*jit))));
  });
}

const EngineOptions& Engine::options() const noexcept { return state_->options; }

Result<Dataset> Engine::upload(const DataView& data) const {
  return withinMemory([&]() -> Result<Dataset> {
    auto state = Dataset::State::create(data, state_->options.precision);
    if (!state) return std::move(state).error();
    return Dataset(std::move(*state));
  });
}

Program Engine::compile(std::span<const Expression> expressions, const CompileOptions& options) const {
  auto state = std::make_shared<Program::State>();
  state->precision = state_->options.precision;
  state->math = state_->options.math;
  state->expressions.assign(expressions.begin(), expressions.end());
  for (const Expression& expression : expressions) {
    state->parameter_offsets.push_back(state->parameter_offsets.back() + expression.parameterCount());
    state->variables = std::max(state->variables, expression.variableCount());
    state->info.nodes_before += expression.size();
  }
  Tier tier = options.tier.value_or(state_->options.tier);
  if (tier == Tier::kAuto) {
    tier = compilingPays(options.expected_passes, options.expected_rows) ? Tier::kCompile : Tier::kInterpret;
  }
  state->info.tier = tier;
  state->pipeline = options.pipeline ? *options.pipeline : Pipeline::standard(state_->options.math);

  const Status made = withinMemory([&]() -> Status {
    HostRequest request{state->expressions, state->parameter_offsets, {}, state->pipeline, tier};
    request.chosen.resize(expressions.size());
    for (std::uint32_t i = 0; i < request.chosen.size(); ++i) request.chosen[i] = i;
    state_->arena.execute([&] { state->batches = std::make_unique<HostBatches>(state_->jit, request); });
    return okStatus();
  });
  if (!made) {
    for (std::size_t i = 0; i < expressions.size(); ++i) state->failures.push_back({i, made.error()});
    return Program(std::move(state));
  }
  state->failures = state->batches->failures();
  state->info.nodes_after = state->batches->nodes();
  state->info.seconds_passes = state->batches->secondsPasses();
  state->info.seconds_codegen = state->batches->secondsCodegen();
  return Program(std::move(state));
}

Result<std::vector<Failure>> Engine::evaluate(const Program& program, const Dataset& data,
                                              std::span<const double> parameters, std::span<float> out) const {
  return withinMemory([&] { return state_->evaluate(program, data, parameters, out); });
}

Result<std::vector<Failure>> Engine::evaluate(const Program& program, const Dataset& data,
                                              std::span<const double> parameters, std::span<double> out) const {
  return withinMemory([&] { return state_->evaluate(program, data, parameters, out); });
}

Result<Losses> Engine::loss(const Program& program, const Dataset& data, std::span<const double> parameters,
                            const LossOptions& options) const {
  return withinMemory([&] { return state_->loss(program, data, parameters, options); });
}

}  // namespace srjit
