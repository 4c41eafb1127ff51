#include "runtime/host/executor.h"

#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "compiler/kernels/image_maker.h"
#include "compiler/kernels/key.h"
#include "compiler/lowering/code_weights.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/host/batches.h"
#include "runtime/platform/clock.h"
#include "runtime/platform/trace.h"

namespace srjit {
namespace {

/// Seconds of one core per node of an expression, measured on an AMD EPYC (Zen 4, 512-bit vectors, 3.65 GHz), f32 fast,
/// 2026-11-21: between the populations "mixed" (120e-6, 0.084e-9 and 0.052e-9) and "arithmetic" (22e-6, 0.045e-9 and
/// 0.0135e-9). Only their ratio matters, which varies less between processors than the seconds do.
constexpr double kCompileSecondsPerNode = 40e-6;
constexpr double kInterpretSecondsPerNodeRow = 0.07e-9;
constexpr double kCompiledSecondsPerNodeRow = 0.03e-9;

/// A function costs compiled code as much time as this number of other nodes saves. The interpreter's handler runs one
/// function over a block of rows, and the processor overlaps more rows of it than of a loop with several functions.
/// Measured in random trees of + - * and one function, 64 at a time, one core of an AMD EPYC (2.6 GHz),
/// precise f32 and f64, 2026-11-27: 2 (sin) to 20 (pow), 8 for exp.
constexpr double kNodesLostPerFunction = 8;
/// Operators of more instructions have the program of a function (codeWeight() of TargetKind::kHost).
constexpr unsigned kLongestOperation = 14;

/// Whether machine code per batch takes less time to compile than it saves. Both sides are proportional to the number
/// of nodes and inversely to that of cores, so only the share of functions matters.
bool compilingPays(const ProgramSource& source, const CompileOptions& options) {
  const auto nodes = static_cast<double>(source.tokens);
  const double node_rows = options.expected_evaluations * static_cast<double>(options.expected_rows);
  const auto pays = [&](std::size_t functions) {
    const double gaining = nodes - kNodesLostPerFunction * static_cast<double>(functions);
    return node_rows * gaining * (kInterpretSecondsPerNodeRow - kCompiledSecondsPerNodeRow) >
           kCompileSecondsPerNode * nodes;
  };
  // Mostly that is enough to know, and functions are not counted.
  if (!pays(0)) return false;
  const CodeWeights weights = codeWeights(source.precision, source.math, TargetKind::kHost);
  std::size_t functions = 0;
  for (std::size_t e = 0; e < source.expressions.size(); ++e) {
    for (const Token& token : source.expressions[e]) {
      const bool is_function =
          token.kind == Token::Kind::kOp && weights[static_cast<std::size_t>(token.op)] > kLongestOperation;
      functions += is_function ? 1 : 0;
    }
  }
  return pays(functions);
}

Tier chooseTier(Tier wanted, const ProgramSource& source, const CompileOptions& options) {
  if (wanted == Tier::kAuto) return compilingPays(source, options) ? Tier::kCompile : Tier::kInterpret;
  return wanted == Tier::kDirect ? Tier::kInterpret : wanted;
}

using MadeData = Result<std::shared_ptr<const Dataset::State>>;

MadeData constant(Result<std::shared_ptr<Dataset::State>> state) {
  if (!state) return std::move(state).error();
  return std::shared_ptr<const Dataset::State>(std::move(*state));
}

Error onGpu(const char* what) {
  return {Errc::kUnsupported, fmt::format("{} in a GPU's memory, but the engine computes on the CPU", what), {}};
}

class HostExecutor final : public Executor {
 public:
  HostExecutor(const EngineOptions& options, unsigned threads, std::shared_ptr<KernelCache> cache)
      : Executor(threads),
        cache_(std::move(cache)),
        jit_(std::make_shared<HostJit>(options.precision, options.math, detectHost(), keptIn(cache_, detectHost()))),
        threads_(threads) {}

  MadeData upload(const DataView& data) override { return constant(Dataset::State::create(data, jit_->precision())); }
  MadeData adopt(const DeviceDataView&) override { return onGpu("columns"); }
  MadeData select(const Dataset& data, const Selection& selection) override {
    return constant(selectOnHost(data.state(), selection));
  }
  Result<AlignedBuffer> fetch(const char* what, const DeviceMatrix&, std::size_t, std::uint64_t) override {
    return onGpu(what);
  }
  Status claimOutput(const DeviceMatrix&, std::uint64_t) override { return onGpu("output"); }
  void writeOutput(const Task& task, std::size_t offset, const std::byte* from, std::size_t bytes) override {
    std::memcpy(task.out + offset, from, bytes);
  }

  void compile(Program::State& state, const CompileOptions& options, const Deadline& deadline) override {
    compileOnCpu(state, options, deadline);
  }

  Status prepare(const Task& task) override {
    if (!task.loss) return okStatus();
    const auto kernel = jit_->loss(lossSpecOf(task));
    return kernel ? okStatus() : Status(kernel.error());
  }
  Result<std::unique_ptr<Flight>> start(Task task) override {
    return flightOf(arena_, std::move(task),
                    [this](const Task& own) { return arena_.execute([&] { return evaluateOnCpu(own); }); });
  }

  CacheStats cacheStats() const override { return cache_->stats(); }

 private:
  void compileOnCpu(Program::State& state, const CompileOptions& options, const Deadline& deadline) {
    const ProgramSource& source = *state.source;
    // Also of a program whose code cannot be made.
    const Tier tier = state.info.tier = chooseTier(state.info.tier, source, options);
    TraceSpan span(TraceKind::kCompile, codeOf(tier), kDevice);
    span.add("expressions", source.expressions.size());
    span.add("tokens", source.tokens);
    const CompileOrder order{.source = source, .tier = tier, .deadline = deadline};
    const auto code = arena_.execute([&] { return std::make_shared<HostBatches>(jit_, order); });
    state.failures = code->failures();
    state.info = code->info();
    state.code = code;
  }

  Result<Losses> evaluateOnCpu(const Task& task) const {
    const Program::State& program = task.program.state();
    const Dataset::State& data = task.data.state();
    const std::size_t outputs = program.source->outputs();
    Losses losses;
    if (task.loss) {
      losses.values.resize(outputs);
      losses.valid_rows.resize(outputs);
    }
    if (program.code == nullptr) return losses;
    TraceSpan span(TraceKind::kKernel, codeOf(program.info.tier), kDevice);
    span.add("outputs", outputs);
    span.add("rows", data.rows);
    const auto& code = static_cast<const HostBatches&>(*program.code);
    const AlignedBuffer table = code.table(task.parameters, data.precision);
    if (!task.loss) {
      predictOnHost(code, data, table.data(), threads_, task.deadline, task.out);
      return losses;
    }
    const LossSpec spec = lossSpecOf(task);
    const auto kernel = jit_->loss(spec);
    if (!kernel) return kernel.error();
    HostLoss loss{*kernel, spec};
    if (isOfMoments(spec.term)) loss.constants.target_centre = targetCentre(data);
    const auto take = [&](std::size_t output, LossSums& sums, const Conditioning& now,
                          int times) -> std::optional<Conditioning> {
      if (isOfMoments(spec.term)) {
        const bool has_variables = program.source->expressions[output].variableCount() > 0;
        const auto next = nextConditioning(sums, now, times, has_variables, data.precision);
        if (next) return next;
      }
      takeLoss(losses, output, sums, data, *task.loss);
      return {};
    };
    sumOnHost(code, data, table.data(), threads_, task.deadline, loss, take);
    return losses;
  }

  static constexpr std::string_view kDevice = "cpu";
  static std::string_view codeOf(Tier tier) { return tier == Tier::kCompile ? kCompiledCode : kInterpreterCode; }

  std::shared_ptr<KernelCache> cache_;
  std::shared_ptr<HostJit> jit_;
  unsigned threads_;
};

}  // namespace

HostObjects keptIn(std::shared_ptr<KernelCache> cache, const HostTarget& target) {
  return
      [cache = std::move(cache), target](const std::string& title, const MakeHostObject& make) -> Result<HostObject> {
        const auto image = cache->get(keyOfHostObject(title, target, buildIdentity()), [&]() -> Result<KernelImage> {
          const Stopwatch watch;
          auto object = make();
          if (!object) return std::move(object).error();
          return KernelImage{
              .code = std::move(*object), .form = ImageForm::kObject, .kernels = {}, .seconds = watch.seconds()};
        });
        if (!image) return image.error();
        return HostObject(*image, &(*image)->code);
      };
}

std::unique_ptr<Executor> makeHostExecutor(const EngineOptions& options, unsigned threads,
                                           std::shared_ptr<KernelCache> cache) {
  return std::make_unique<HostExecutor>(options, threads, std::move(cache));
}

std::string missingOf(const HostTarget& processor) {
  if (processor.has_fma) return {};
  return "the processor has no fused multiply-add instruction, so evaluation on it is slow";
}

}  // namespace srjit
