#include "runtime/code/compile.h"

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
#include <memory>
#include <ranges>
#include <utility>

#include <tbb/parallel_for.h>
#include <tbb/task_group.h>

#include "compiler/lowering/source_map.h"
#include "runtime/code/interpreted/encode.h"
#include "runtime/platform/clock.h"

namespace srjit {
namespace {

// Blocks per multiprocessor, of f32 and of f64, as measured on an H200 (docs/history/experiments.md).
constexpr unsigned kMinBlocks = 4, kMinBlocksWide = 2;

/// What spilling may cost, as a part of a kernel's instructions, before it is made again in halves. The assembler
/// spills a few registers of most kernels to keep within the limit; halves share less of what they compute.
constexpr double kMaxSpilling = 0.02;

unsigned minBlocksOf(Precision precision) { return isDouble(precision) ? kMinBlocksWide : kMinBlocks; }

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

/// Graphs that are tried as one module.
struct Attempt {
  GraphSpan graphs;
  unsigned min_blocks;
  KernelKey key;
};

Attempt attemptOf(const CodeRequest& request, const KernelKind& kind, const GraphSpan& graphs, unsigned min_blocks) {
  return {graphs, min_blocks, request.store.keyOf(graphs.dags, kind, kCompiledRowsPerThread, min_blocks)};
}

/// A planned module, what it is divided into, and what came of them.
class Batch {
 public:
  Batch(const CodeRequest& request, const KernelKind& kind, const std::atomic<bool>& cancelled, Attempt whole)
      : request_(request), kind_(kind), cancelled_(cancelled), missing_{std::move(whole)} {}

  /// Reads the whole module from the cache; before loadCached().
  void read(const std::shared_ptr<KernelImage>& space) {
    if (!isCancelled()) found_ = request_.store.findRows(missing_.front().key, space);
  }
  /// Loads the module that was read. If it must be divided, also reads its parts from the cache, into `space`, and
  /// loads them. Before make().
  void loadCached(const std::shared_ptr<KernelImage>& space) {
    for (const Attempt& attempt : std::exchange(missing_, {})) load(attempt, std::exchange(found_, {}), space);
  }
  /// Makes the missing modules. In parallel with other batches.
  void make() {
    for (const Attempt& attempt : std::exchange(missing_, {})) make(attempt);
  }

  std::vector<Draft> drafts;
  std::vector<std::uint32_t> interpreted;
  CodeReport report;  ///< compile_error: of the last attempt that could not be divided
  std::vector<Failure> failures;

 private:
  bool isCancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  void load(const Attempt& attempt, const FoundRows& found, const std::shared_ptr<KernelImage>& space) {
    if (isCancelled()) return;
    if (found.isNothing()) return missing_.push_back(attempt);
    const Stopwatch loading;
    const auto module = request_.store.load(attempt.key, found);
    report.seconds_loading += loading.seconds();
    take(attempt, module, 0, [&](const Attempt& part) {
      const Stopwatch reading;
      const FoundRows found_part = request_.store.findRows(part.key, space);
      report.seconds_reading += reading.seconds();
      load(part, found_part, space);
    });
  }

  void make(const Attempt& attempt) {
    if (isCancelled()) return;
    const auto make_part = [this](const Attempt& part) { make(part); };
    double making = 0;
    auto module = request_.store.rows(attempt.key, attempt.graphs.dags, kind_, kCompiledRowsPerThread,
                                      attempt.min_blocks, making);
    report.made_seconds += making;
    if (module) return take(attempt, *module, making, make_part);
    // Where it is the machine that fails, smaller kernels would not help.
    if (module.error().code != Errc::kMachine && divide(attempt.graphs, attempt.min_blocks, make_part)) return;
    report.compile_error = std::move(module).error();
    for (const KernelGroup& group : attempt.graphs.groups) {
      interpreted.insert(interpreted.end(), group.expressions.begin(), group.expressions.end());
    }
  }

  /// Keeps the kernels of a module, which took `making` seconds to make; those that spill are tried again by `again`.
  template <class Again>
  void take(const Attempt& attempt, const std::shared_ptr<const Module>& module, double making, const Again& again) {
    for (std::size_t i = 0; i < attempt.graphs.size(); ++i) {
      const KernelGroup& group = attempt.graphs.groups[i];
      const Stopwatch loading;
      const Kernel kernel = module->kernel(rowsKernelName(i));
      if (making == 0) report.seconds_loading += loading.seconds();
      if (spills(kernel, group.weight)) {
        const GraphSpan own = attempt.graphs.part(i, 1);
        if (divide(own, attempt.min_blocks, again)) continue;
        if (attempt.min_blocks > 1) {
          again(attemptOf(request_, kind_, own, 1));
          continue;
        }
      }
      if (making > 0) report.made_tokens += tokensOf(group, request_.source);
      keep(group, attempt.graphs.dags[i], module, kernel);
    }
  }

  void keep(const KernelGroup& group, const Dag& dag, const std::shared_ptr<const Module>& module,
            const Kernel& kernel) {
    Draft draft{
        .expressions = group.expressions, .module = module, .kernel = kernel, .parameters = {}, .nodes = dag.size()};
    for (const ParameterSource& parameter : dag.parameters()) {
      draft.parameters.add(parameter, offsetOf(parameter, request_.source, group.expressions));
    }
    drafts.push_back(std::move(draft));
  }

  /// Gives `again` the graphs one by one, or the halves of a single one; not if that has a single expression.
  template <class Again>
  bool divide(const GraphSpan& graphs, unsigned min_blocks, const Again& again) {
    if (graphs.size() == 1 && graphs.groups[0].expressions.size() == 1) return false;
    GraphSpan parts = graphs;
    if (graphs.size() == 1) {
      Graphs& halves = halves_.emplace_back();
      halves.groups = halvesOf(graphs.groups[0]);
      addGraphs(halves, request_, cancelled_);
      failures.insert(failures.end(), halves.failures.begin(), halves.failures.end());
      parts = {halves.groups, halves.dags};
    }
    for (std::size_t i = 0; i < parts.size(); ++i) again(attemptOf(request_, kind_, parts.part(i, 1), min_blocks));
    return true;
  }

  const CodeRequest& request_;
  const KernelKind& kind_;
  const std::atomic<bool>& cancelled_;
  FoundRows found_;  ///< of the whole
  std::vector<Attempt> missing_;
  std::deque<Graphs> halves_;  ///< which attempts refer to
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
    batches[b].report.seconds_reading += reading.seconds();
    read(b + 1);
    batches[b].loadCached(spaces[b % 2]);
  }
}

CodeReport reportOf(const Batches& batches, const CodeRequest& request, const Graphs& graphs) {
  CodeReport report;
  report.tokens = request.source.tokens;
  report.seconds_passes = graphs.seconds;
  for (const Batch& batch : batches) {
    report.made_tokens += batch.report.made_tokens;
    report.made_seconds += batch.report.made_seconds;
    report.seconds_reading += batch.report.seconds_reading;
    report.seconds_loading += batch.report.seconds_loading;
    if (batch.report.compile_error) report.compile_error = batch.report.compile_error;
  }
  return report;
}

/// Expressions that get no kernel, ascending.
std::vector<std::uint32_t> interpretedOf(const Batches& batches, const CodeRequest& request, const Graphs& graphs) {
  std::vector<std::uint32_t> interpreted;
  std::ranges::set_difference(std::views::iota(0U, static_cast<std::uint32_t>(request.source.expressions.size())),
                              request.chosen, std::back_inserter(interpreted));
  interpreted.insert(interpreted.end(), graphs.too_long.begin(), graphs.too_long.end());
  for (const Batch& batch : batches) {
    interpreted.insert(interpreted.end(), batch.interpreted.begin(), batch.interpreted.end());
  }
  std::ranges::sort(interpreted);
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

DeviceCode compileForDevice(const CodeRequest& request, const Graphs& graphs, const KernelKind& kind,
                            const std::atomic<bool>& cancelled) {
  const Stopwatch watch;
  std::vector<Attempt> attempts(graphs.modules());
  tbb::parallel_for(std::size_t{0}, attempts.size(), [&](std::size_t m) {
    attempts[m] = attemptOf(request, kind, graphs.module(m), minBlocksOf(request.source.precision));
  });
  const double seconds_keys = watch.seconds();
  Batches batches;
  for (Attempt& attempt : attempts) batches.emplace_back(request, kind, cancelled, std::move(attempt));
  loadCached(batches);
  tbb::parallel_for(std::size_t{0}, batches.size(), [&](std::size_t b) { batches[b].make(); });

  DeviceCode code;
  code.report = reportOf(batches, request, graphs);
  code.report.seconds_reading += seconds_keys;
  code.failures = graphs.failures;
  for (const Batch& batch : batches) {
    code.failures.insert(code.failures.end(), batch.failures.begin(), batch.failures.end());
  }
  if (cancelled.load()) return code;
  const std::vector<std::uint32_t> interpreted = interpretedOf(batches, request, graphs);
  if (!interpreted.empty()) addInterpreted(code, request, interpreted);
  {
    const CurrentContext current(*request.queue.cuda);
    addCompiled(code, batches, request);
  }
  std::ranges::stable_sort(code.failures, {}, &Failure::expression);
  code.report.seconds_codegen = watch.seconds();
  return code;
}

}  // namespace srjit
