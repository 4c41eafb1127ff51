#include "runtime/code/makers.h"

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
#include "ir/numbers/rounding.h"
#include "runtime/platform/clock.h"

namespace srjit {
namespace {

// Blocks per multiprocessor, of f32 and of f64, as measured on an H200 (docs/history/experiments.md).
constexpr unsigned kMinBlocks = 4, kMinBlocksWide = 2;

/// What spilling may cost, as a part of a kernel's instructions, before it is made again in halves. The assembler
/// spills a few registers of most kernels to keep within the limit; halves share less of what they compute.
constexpr double kMaxSpilling = 0.02;

unsigned minBlocksOf(Precision precision) { return isDouble(precision) ? kMinBlocksWide : kMinBlocks; }

std::size_t tokensOf(const Range& range, const ProgramSource& source) {
  std::size_t tokens = 0;
  for (const std::uint32_t e : range.expressions) tokens += source.expressions[e].size();
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
bool spills(const Kernel& kernel, std::size_t length) {
  const double spilling = 2.0 * kernel.facts().stack_bytes / sizeof(float);
  return spilling > kMaxSpilling * static_cast<double>(length * kCompiledRowsPerThread);
}

/// Graphs that are tried as one module.
struct Attempt {
  std::span<const Range> ranges;
  std::span<const Dag> dags;  ///< one a range
  unsigned min_blocks = 0;
  KernelKey key = {};
};

Attempt attemptOf(const KernelStore& store, const KernelKind& kind, std::span<const Range> ranges,
                  std::span<const Dag> dags, unsigned min_blocks) {
  return {ranges, dags, min_blocks, store.keyOf(dags, kind, kCompiledRowsPerThread, min_blocks)};
}

/// A planned module, what it is divided into, and what came of them.
class Batch {
 public:
  Batch(KernelStore& store, const CompileOrder& order, const KernelKind& kind, const std::atomic<bool>& cancelled,
        Attempt whole)
      : store_(store), order_(order), kind_(kind), cancelled_(cancelled), missing_{std::move(whole)} {}

  /// Reads the whole module from the cache; before loadCached().
  void read(const std::shared_ptr<KernelImage>& space) {
    if (!isCancelled()) found_ = store_.findRows(missing_.front().key, space);
  }
  /// Loads the module that was read. If it must be divided, also reads its parts from the cache, into `space`, and
  /// loads them. Before make().
  void loadCached(const std::shared_ptr<KernelImage>& space) {
    for (const Attempt& attempt : std::exchange(missing_, {})) load(attempt, found_, space);
    found_ = {};
  }
  /// Makes the missing modules. In parallel with other batches.
  void make() {
    for (const Attempt& attempt : std::exchange(missing_, {})) make(attempt);
  }

  std::vector<Draft> drafts;
  std::vector<std::uint32_t> interpreted;
  DeviceCode report;  ///< no code, but failures and times, and the error of the last attempt that could not be divided

 private:
  bool isCancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  void load(const Attempt& attempt, const FoundRows& found, const std::shared_ptr<KernelImage>& space) {
    if (isCancelled()) return;
    if (found.isNothing()) return missing_.push_back(attempt);
    const Stopwatch loading;
    const auto module = store_.load(attempt.key, found);
    report.status.seconds_loading += loading.seconds();
    take(attempt, module, 0, [&](const Attempt& part) {
      const Stopwatch reading;
      const FoundRows found_part = store_.findRows(part.key, space);
      report.status.seconds_reading += reading.seconds();
      load(part, found_part, space);
    });
  }

  void make(const Attempt& attempt) {
    if (isCancelled()) return;
    const auto make_part = [this](const Attempt& part) { make(part); };
    double making = 0;
    auto module = store_.rows(attempt.key, attempt.dags, kind_, kCompiledRowsPerThread, attempt.min_blocks, making);
    report.made_seconds += making;
    if (module) return take(attempt, *module, making, make_part);
    // Where it is the machine that fails, smaller kernels would not help.
    if (module.error().code != Errc::kMachine && divide(attempt, make_part)) return;
    report.status.error = std::move(module).error();
    for (const Range& range : attempt.ranges) {
      interpreted.insert(interpreted.end(), range.expressions.begin(), range.expressions.end());
    }
  }

  /// Keeps the kernels of a module, which took `making` seconds to make; those that spill are tried again by `again`.
  template <class Again>
  void take(const Attempt& attempt, const std::shared_ptr<const Module>& module, double making, const Again& again) {
    for (std::size_t i = 0; i < attempt.ranges.size(); ++i) {
      const Range& range = attempt.ranges[i];
      const Stopwatch loading;
      const Kernel kernel = module->kernel(rowsKernelName(i));
      if (making == 0) report.status.seconds_loading += loading.seconds();
      if (spills(kernel, range.length)) {
        const Attempt own{attempt.ranges.subspan(i, 1), attempt.dags.subspan(i, 1), attempt.min_blocks};
        if (divide(own, again)) continue;
        if (attempt.min_blocks > 1) {
          again(attemptOf(store_, kind_, own.ranges, own.dags, 1));
          continue;
        }
      }
      if (making > 0) report.made_tokens += tokensOf(range, order_.source);
      keep(range, attempt.dags[i], module, kernel);
    }
  }

  void keep(const Range& range, const Dag& dag, const std::shared_ptr<const Module>& module, const Kernel& kernel) {
    Draft draft{
        .expressions = range.expressions, .module = module, .kernel = kernel, .parameters = {}, .nodes = dag.size()};
    for (const ParameterSource& parameter : dag.parameters()) {
      draft.parameters.add(parameter, offsetOf(parameter, order_.source, range.expressions));
    }
    drafts.push_back(std::move(draft));
  }

  /// Gives `again` the graphs one by one, or the halves of a single one; not if that has a single expression.
  template <class Again>
  bool divide(const Attempt& attempt, const Again& again) {
    std::span<const Range> ranges = attempt.ranges;
    std::span<const Dag> dags = attempt.dags;
    if (ranges.size() == 1) {
      if (ranges[0].expressions.size() == 1) return false;
      Graphs& halves = halves_.emplace_back();
      halves.ranges = halvesOf(ranges[0]);
      addGraphs(halves, order_, cancelled_);
      report.failures.insert(report.failures.end(), halves.failures.begin(), halves.failures.end());
      ranges = halves.ranges;
      dags = halves.dags;
    }
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      again(attemptOf(store_, kind_, ranges.subspan(i, 1), dags.subspan(i, 1), attempt.min_blocks));
    }
    return true;
  }

  KernelStore& store_;
  const CompileOrder& order_;
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
    batches[b].report.status.seconds_reading += reading.seconds();
    read(b + 1);
    batches[b].loadCached(spaces[b % 2]);
  }
}

/// Adds the failures and times of all batches.
void addReports(DeviceCode& code, const Batches& batches) {
  for (const Batch& batch : batches) {
    const DeviceCode& own = batch.report;
    code.made_tokens += own.made_tokens;
    code.made_seconds += own.made_seconds;
    code.status.seconds_reading += own.status.seconds_reading;
    code.status.seconds_loading += own.status.seconds_loading;
    if (own.status.error) code.status.error = own.status.error;
    code.failures.insert(code.failures.end(), own.failures.begin(), own.failures.end());
  }
}

/// Expressions that get no kernel, ascending.
std::vector<std::uint32_t> interpretedOf(const Batches& batches, const CompileOrder& order, const Graphs& graphs) {
  std::vector<std::uint32_t> interpreted;
  std::ranges::set_difference(order.source.all(), order.range, std::back_inserter(interpreted));
  interpreted.insert(interpreted.end(), graphs.too_long.begin(), graphs.too_long.end());
  for (const Batch& batch : batches) {
    interpreted.insert(interpreted.end(), batch.interpreted.begin(), batch.interpreted.end());
  }
  std::ranges::sort(interpreted);
  return interpreted;
}

/// Encodes expressions for the interpreter, as a part of `code`.
void addInterpreted(DeviceCode& code, KernelStore& store, const CompileOrder& order) {
  DeviceCode rest = encodeForDevice(store, order);
  code.interpreter = std::move(rest.interpreter);
  code.parameters = std::move(rest.parameters);
  code.info.nodes_after = rest.info.nodes_after;
  code.failures.insert(code.failures.end(), rest.failures.begin(), rest.failures.end());
}

/// Makes the drafts a part of `code`. Needs a current context.
void addCompiled(DeviceCode& code, const Batches& batches, const ProgramSource& source, const DeviceQueue& queue) {
  CompiledCode compiled;
  std::vector<std::uint32_t> outputs;
  for (const Batch& batch : batches) {
    for (const Draft& draft : batch.drafts) {
      compiled.kernels.push_back({.kernel = draft.kernel,
                                  .outputs = outputs.size() * sizeof(std::uint32_t),  // in the buffer below
                                  .first_parameter = code.parameters.size()});
      compiled.modules.push_back(draft.module);
      compiled.expressions += draft.expressions.size();
      for (const std::uint32_t e : draft.expressions) source.appendOutputs(e, outputs);
      code.parameters.append(draft.parameters);
      code.info.nodes_after += draft.nodes;
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

DeviceCode compileForDevice(KernelStore& store, const CompileOrder& order, const Graphs& graphs, const KernelKind& kind,
                            const std::atomic<bool>& cancelled) {
  const Stopwatch watch;
  std::vector<Attempt> attempts(ceilDivide(graphs.ranges.size(), graphs.per_module));
  tbb::parallel_for(std::size_t{0}, attempts.size(), [&](std::size_t m) {
    const std::size_t first = m * graphs.per_module, count = std::min(graphs.per_module, graphs.ranges.size() - first);
    attempts[m] = attemptOf(store, kind, std::span(graphs.ranges).subspan(first, count),
                            std::span(graphs.dags).subspan(first, count), minBlocksOf(order.source.precision));
  });
  DeviceCode code;
  code.info.nodes_before = order.source.tokens;
  code.info.seconds_passes = graphs.seconds;
  code.status.seconds_reading = watch.seconds();
  code.failures = graphs.failures;
  Batches batches;
  for (Attempt& attempt : attempts) batches.emplace_back(store, order, kind, cancelled, std::move(attempt));
  loadCached(batches);
  tbb::parallel_for(std::size_t{0}, batches.size(), [&](std::size_t b) { batches[b].make(); });
  addReports(code, batches);
  if (cancelled.load()) return code;
  const std::vector<std::uint32_t> interpreted = interpretedOf(batches, order, graphs);
  if (!interpreted.empty()) addInterpreted(code, store, order.of(interpreted));
  {
    const CurrentContext current(*store.queue().cuda);
    addCompiled(code, batches, order.source, store.queue());
  }
  std::ranges::stable_sort(code.failures, {}, &Failure::expression);
  code.info.seconds_codegen = watch.seconds();
  return code;
}

}  // namespace srjit
