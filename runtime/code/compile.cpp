#include "runtime/code/compile.h"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <iterator>
#include <mutex>
#include <ranges>
#include <utility>

#include <tbb/parallel_for.h>
#include <tbb/task_group.h>

#include "compiler/lowering/source_map.h"
#include "runtime/code/interpreted/encode.h"
#include "runtime/code/kernel_plan.h"
#include "runtime/code/parts.h"
#include "runtime/platform/aligned_buffer.h"
#include "runtime/platform/clock.h"

namespace srjit {
namespace {

// Blocks per multiprocessor, of f32 and of f64, as measured on an H200 (docs/history/experiments.md).
constexpr unsigned kMinBlocks = 4, kMinBlocksWide = 2;

/// What spilling may cost, as a part of a kernel's instructions, before it is made again in halves. The assembler
/// spills a few registers of most kernels to keep within the limit; halves share less of what they compute.
constexpr double kMaxSpilling = 0.02;

unsigned minBlocksOf(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return kMinBlocks;
    case Precision::kF64:
      return kMinBlocksWide;
  }
  __builtin_unreachable();
}

std::size_t tokensOf(const KernelGroup& group, const ProgramSource& source) {
  std::size_t tokens = 0;
  for (const std::uint32_t e : group.expressions) tokens += source.expressions[e].size();
  return tokens;
}

/// A kernel while it is being made.
struct Draft {
  std::vector<std::uint32_t> expressions;
  std::shared_ptr<const Module> module;
  Kernel kernel;
  ParameterTable parameters;
  std::size_t nodes = 0;
};

// A stack frame is what registers were spilled to, a word being stored and loaded at least once; the driver, which
// assembles PTX, reports no more than that.
bool spills(const Kernel& kernel, std::size_t weight) {
  const double spilling = 2.0 * kernel.facts().stack_bytes / sizeof(float);
  return spilling > kMaxSpilling * static_cast<double>(weight * kCompiledRowsPerThread);
}

/// Groups that are tried as one module.
struct Attempt {
  PlannedModule module;
  unsigned min_blocks;
  KernelKey key;
};

Attempt attemptOf(const CodeRequest& request, const KernelKind& kind, const PlannedModule& module,
                  unsigned min_blocks) {
  return {module, min_blocks, request.store.keyOf(module.dags, kind, kCompiledRowsPerThread, min_blocks)};
}

/// A planned module, what it is divided into, and what came of them.
class Batch {
 public:
  Batch(const CodeRequest& request, const KernelKind& kind, const std::atomic<bool>& cancelled, Attempt whole)
      : request_(request), kind_(kind), cancelled_(cancelled), whole_(std::move(whole)) {}

  /// Reads what the cache has of the whole module; before loadCached().
  void read(const std::shared_ptr<KernelImage>& space) {
    if (!isCancelled()) found_ = request_.store.findRows(whole_.key, space);
  }

  /// Loads what was read, and what the cache has of its parts if it has to be divided, which is read into `space`;
  /// before make().
  void loadCached(const std::shared_ptr<KernelImage>& space) { load(whole_, std::exchange(found_, {}), space); }

  /// Makes what is missing. In parallel with other batches.
  void make() {
    for (const Attempt& attempt : std::exchange(missing_, {})) make(attempt);
  }

  std::vector<Draft> drafts;
  std::vector<std::uint32_t> interpreted;
  std::optional<Error> error;   ///< of the last attempt that could not be divided
  std::size_t made_tokens = 0;  ///< of expressions whose kernels did not come from the cache
  double made_seconds = 0;      ///< of one core, for those
  double seconds_reading = 0;   ///< of kernels from the cache, that their loading waited for
  double seconds_loading = 0;   ///< of these, by the driver
  std::vector<Failure> failures;

 private:
  bool isCancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  void load(const Attempt& attempt, const FoundRows& found, const std::shared_ptr<KernelImage>& space) {
    if (isCancelled()) return;
    if (found.isNothing()) return missing_.push_back(attempt);
    const Stopwatch loading;
    const std::shared_ptr<const Module> module = request_.store.load(attempt.key, found);
    seconds_loading += loading.seconds();
    take(attempt, module, 0, [&](const Attempt& part) {
      const Stopwatch reading;
      const FoundRows found_part = request_.store.findRows(part.key, space);
      seconds_reading += reading.seconds();
      load(part, found_part, space);
    });
  }

  void make(const Attempt& attempt) {
    if (isCancelled()) return;
    const auto make_part = [this](const Attempt& part) { make(part); };
    double making = 0;
    auto module = request_.store.rows(attempt.key, attempt.module.dags, kind_, kCompiledRowsPerThread,
                                      attempt.min_blocks, making);
    made_seconds += making;
    if (module) return take(attempt, *module, making, make_part);
    // Where it is the machine that fails, smaller kernels would not help.
    if (module.error().code != Errc::kMachine && divide(attempt.module, attempt.min_blocks, make_part)) return;
    error = std::move(module).error();
    for (const KernelGroup& group : attempt.module.groups) {
      interpreted.insert(interpreted.end(), group.expressions.begin(), group.expressions.end());
    }
  }

  /// Keeps the kernels of a module, which took `making` seconds to make; those that spill are tried again by `again`.
  template <class Again>
  void take(const Attempt& attempt, const std::shared_ptr<const Module>& module, double making, const Again& again) {
    for (std::size_t i = 0; i < attempt.module.groups.size(); ++i) {
      const KernelGroup& group = attempt.module.groups[i];
      const Stopwatch loading;
      const Kernel kernel = module->kernel(rowsKernelName(i));
      if (making == 0) seconds_loading += loading.seconds();
      if (spills(kernel, group.weight)) {
        const PlannedModule alone = partOf(attempt.module, i);
        if (divide(alone, attempt.min_blocks, again)) continue;
        if (attempt.min_blocks > 1) {
          again(attemptOf(request_, kind_, alone, 1));
          continue;
        }
      }
      if (making > 0) made_tokens += tokensOf(group, request_.source);
      keep(group, attempt.module.dags[i], module, kernel);
    }
  }

  void keep(const KernelGroup& group, const Dag& dag, const std::shared_ptr<const Module>& module,
            const Kernel& kernel) {
    Draft draft{
        .expressions = group.expressions, .module = module, .kernel = kernel, .parameters = {}, .nodes = dag.size()};
    for (const ParameterSource& parameter : dag.parameters()) {
      draft.parameters.add(parameter, parameter.isLiteral()
                                          ? 0
                                          : request_.source.parameterOffset(group.expressions[parameter.expression]));
    }
    drafts.push_back(std::move(draft));
  }

  static PlannedModule partOf(const PlannedModule& module, std::size_t group) {
    return {module.groups.subspan(group, 1), module.dags.subspan(group, 1)};
  }

  /// Gives `again` the groups one by one, or the halves of a single one; not if that has a single expression.
  template <class Again>
  bool divide(const PlannedModule& module, unsigned min_blocks, const Again& again) {
    if (module.groups.size() == 1 && module.groups[0].expressions.size() == 1) return false;
    for (std::size_t i = 0; module.groups.size() > 1 && i < module.groups.size(); ++i) {
      again(attemptOf(request_, kind_, partOf(module, i), min_blocks));
    }
    if (module.groups.size() > 1) return true;
    KernelPlan& halves = halves_.emplace_back();
    for (KernelGroup& half : halvesOf(module.groups[0])) halves.groups.push_back(std::move(half));
    addGraphs(halves, request_, cancelled_);
    failures.insert(failures.end(), halves.failures.begin(), halves.failures.end());
    for (std::size_t h = 0; h < halves.modules(); ++h) again(attemptOf(request_, kind_, halves.module(h), min_blocks));
    return true;
  }

  const CodeRequest& request_;
  const KernelKind& kind_;
  const std::atomic<bool>& cancelled_;
  const Attempt whole_;
  FoundRows found_;  ///< of the whole
  std::vector<Attempt> missing_;
  std::deque<KernelPlan> halves_;  ///< which attempts refer to
};

using Batches = std::deque<Batch>;

// The calling thread loads one module after another: where several threads read or load at a time, both take longer
// (docs/history/experiments.md). Meanwhile a task reads the next one, into memory that is used again.
void loadCached(Batches& batches) {
  const std::array spaces{std::make_shared<KernelImage>(), std::make_shared<KernelImage>()};
  tbb::task_group ahead;
  const auto read = [&](std::size_t b) {
    if (b < batches.size()) ahead.run([&, b] { batches[b].read(spaces[b % 2]); });
  };
  read(0);
  for (std::size_t b = 0; b < batches.size(); ++b) {
    const Stopwatch reading;
    ahead.wait();
    batches[b].seconds_reading += reading.seconds();
    read(b + 1);
    batches[b].loadCached(spaces[b % 2]);
  }
}

CodeReport reportOf(const Batches& batches, const CodeRequest& request, const KernelPlan& plan) {
  CodeReport report;
  report.tokens = request.source.tokens;
  report.seconds_passes = plan.seconds_passes;
  for (const Batch& batch : batches) {
    report.made_tokens += batch.made_tokens;
    report.made_seconds += batch.made_seconds;
    report.seconds_reading += batch.seconds_reading;
    report.seconds_loading += batch.seconds_loading;
    if (batch.error) report.compile_error = batch.error;
  }
  return report;
}

/// Failures of the plan and of batches, in any order.
std::vector<Failure> failuresOf(const Batches& batches, const KernelPlan& plan) {
  std::vector<Failure> failures = plan.failures;
  for (const Batch& batch : batches) failures.insert(failures.end(), batch.failures.begin(), batch.failures.end());
  return failures;
}

/// Expressions that get no kernel, ascending.
std::vector<std::uint32_t> interpretedOf(const Batches& batches, const CodeRequest& request, const KernelPlan& plan) {
  std::vector<std::uint32_t> interpreted;
  std::ranges::set_difference(std::views::iota(0U, static_cast<std::uint32_t>(request.source.expressions.size())),
                              request.chosen, std::back_inserter(interpreted));
  interpreted.insert(interpreted.end(), plan.too_long.begin(), plan.too_long.end());
  for (const Batch& batch : batches) {
    interpreted.insert(interpreted.end(), batch.interpreted.begin(), batch.interpreted.end());
  }
  std::sort(interpreted.begin(), interpreted.end());
  return interpreted;
}

/// Encodes expressions for the interpreter, as a part of `code`.
void addInterpreted(DeviceCode& code, const CodeRequest& request, std::span<const std::uint32_t> interpreted) {
  DeviceCode rest = encodeForDevice(request.withChosen(interpreted));
  code.interpreter = std::move(rest.interpreter);
  code.parameters = std::move(rest.parameters);
  code.report.nodes = rest.report.nodes;
  code.failures.insert(code.failures.end(), rest.failures.begin(), rest.failures.end());
}

/// Makes the drafts a part of `code`. Needs a current context.
void addCompiled(DeviceCode& code, const Batches& batches, const CodeRequest& request) {
  const DeviceQueue& queue = request.queue;
  CompiledCode compiled;
  std::vector<std::uint32_t> outputs;
  for (const Batch& batch : batches) {
    for (const Draft& draft : batch.drafts) {
      compiled.kernels.push_back({.kernel = draft.kernel,
                                  .outputs = outputs.size() * sizeof(std::uint32_t),  // in the buffer below
                                  .first_parameter = code.parameters.size()});
      compiled.modules.push_back(draft.module);
      compiled.expressions += draft.expressions.size();
      for (const std::uint32_t e : draft.expressions) request.source.appendOutputs(e, outputs);
      code.parameters.append(draft.parameters);
      code.report.nodes += draft.nodes;
    }
  }
  if (compiled.kernels.empty()) return;
  const std::size_t bytes = outputs.size() * sizeof(std::uint32_t);
  compiled.outputs = DeviceBuffer(queue.uploads, bytes);
  for (CompiledKernel& kernel : compiled.kernels) kernel.outputs += compiled.outputs.address();
  queue.uploads->complete([&] { queue.uploads->copyToDevice(compiled.outputs.address(), outputs.data(), bytes); });
  code.compiled.emplace(std::move(compiled));
}

}  // namespace

DeviceCode compileForDevice(const CodeRequest& request, const KernelPlan& plan, const KernelKind& kind,
                            const std::atomic<bool>& cancelled) {
  const Stopwatch watch;
  std::vector<Attempt> attempts(plan.modules());
  tbb::parallel_for(std::size_t{0}, attempts.size(), [&](std::size_t m) {
    attempts[m] = attemptOf(request, kind, plan.module(m), minBlocksOf(request.source.precision));
  });
  const double seconds_keys = watch.seconds();
  Batches batches;
  for (Attempt& attempt : attempts) batches.emplace_back(request, kind, cancelled, std::move(attempt));
  loadCached(batches);
  tbb::parallel_for(std::size_t{0}, batches.size(), [&](std::size_t b) { batches[b].make(); });

  DeviceCode code;
  code.report = reportOf(batches, request, plan);
  code.report.seconds_reading += seconds_keys;
  code.failures = failuresOf(batches, plan);
  if (cancelled.load()) return code;
  const std::vector<std::uint32_t> interpreted = interpretedOf(batches, request, plan);
  if (!interpreted.empty()) addInterpreted(code, request, interpreted);
  {
    const CurrentContext current(*request.queue.cuda);
    addCompiled(code, batches, request);
  }
  std::sort(code.failures.begin(), code.failures.end(),
            [](const Failure& a, const Failure& b) { return a.expression < b.expression; });
  code.report.seconds_codegen = watch.seconds();
  return code;
}

MissingKernels findMissing(const CodeRequest& request, const KernelKind& kind,
                           const std::function<bool(const MissingKernels&)>& pays, const std::atomic<bool>& cancelled) {
  const KernelPlan plan = planKernels(request);
  const auto allOf = [&](std::span<const KernelGroup> groups) {
    MissingKernels all{.kernels = groups.size(), .tokens = 0};
    for (const KernelGroup& group : groups) all.tokens += tokensOf(group, request.source);
    return all;
  };
  std::mutex mutex;
  MissingKernels missing;
  std::atomic<bool> stopped = false;
  tbb::parallel_for(std::size_t{0}, plan.modules(), [&](std::size_t m) {
    if (stopped.load(std::memory_order_relaxed) || cancelled.load(std::memory_order_relaxed)) return;
    const std::span<const KernelGroup> groups = plan.module(m).groups;
    std::vector<Dag> dags;
    for (const KernelGroup& group : groups) {
      Result<Dag> dag = graphOf(group, request);
      if (!dag) break;  // then its expressions are tried in another way
      dags.push_back(std::move(*dag));
    }
    if (dags.size() == groups.size() &&
        request.store.hasRows(
            request.store.keyOf(dags, kind, kCompiledRowsPerThread, minBlocksOf(request.source.precision)))) {
      return;
    }
    const MissingKernels more = allOf(groups);
    const std::lock_guard lock(mutex);
    missing.kernels += more.kernels;
    missing.tokens += more.tokens;
    if (!pays(missing)) stopped = true;
  });
  return stopped || cancelled.load() ? allOf(plan.groups) : missing;
}

}  // namespace srjit
