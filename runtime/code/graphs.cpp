#include "runtime/code/makers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <tbb/parallel_for.h>

#include "compiler/direct/emitter.h"
#include "compiler/lowering/code_weights.h"
#include "runtime/evaluation/ranges.h"
#include "runtime/platform/aligned_buffer.h"
#include "runtime/platform/clock.h"

namespace srjit {
namespace {

/// Kernels of one module, at most: the driver loads modules one after another, and each takes it a while. As long as
/// there are kModulesPerThread for every thread, so that all of them compile to the end.
constexpr std::size_t kKernelsPerModule = 8, kModulesPerThread = 2;

// The most expressions of a graph for direct code, whole groups: enough to share columns and subtrees, and few enough
// for all threads to have graphs.
constexpr std::size_t kMostOfDirectGraph = std::size_t{16} * kDirectRoots;

/// Adds the graph of a range, or those of its parts where passes refuse it as a whole.
void addGraph(Graphs& to, Range range, const CompileOrder& order) {
  Result<Dag> dag = graphOf(order.of(range.expressions, Tier::kCompile));
  if (dag) {
    to.ranges.push_back(std::move(range));
    to.dags.push_back(std::move(*dag));
  } else if (range.expressions.size() == 1) {
    to.failures.push_back({range.expressions[0], std::move(dag).error()});
  } else {
    for (Range& half : halvesOf(range)) addGraph(to, std::move(half), order);
  }
}

/// Replaces the ranges of `all` by those of `parts`, in order, with their graphs and failures.
void join(Graphs& all, std::vector<Graphs>& parts) {
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  all.ranges.clear();
  for (Graphs& part : parts) {
    append(all.ranges, part.ranges);
    append(all.dags, part.dags);
    append(all.failures, part.failures);
  }
  std::ranges::sort(all.failures, {}, &Failure::expression);
  for (const Dag& dag : all.dags) all.nodes += dag.size();
}

}  // namespace

Graphs directGraphs(const CompileOrder& order) {
  const Stopwatch watch;
  const std::vector<std::uint32_t> all = order.source.all();
  const std::size_t count = all.size();
  const std::size_t wanted = count / (std::size_t{4} * order.threads) / kDirectRoots * kDirectRoots;
  const std::size_t size = std::clamp<std::size_t>(wanted, kDirectRoots, kMostOfDirectGraph);
  std::vector<Graphs> parts(ceilDivide(count, size));
  tbb::parallel_for(std::size_t{0}, parts.size(), [&](std::size_t i) {
    const auto members = std::span(all).subspan(i * size, std::min(size, count - i * size));
    graphsOf(order.of(members, Tier::kDirect), [&](std::size_t first, std::size_t several, Result<Dag> dag) {
      if (!dag) return parts[i].failures.push_back({members[first], std::move(dag).error()});
      const auto own = members.subspan(first, several);
      parts[i].ranges.push_back({.expressions = {own.begin(), own.end()}});
      parts[i].dags.push_back(std::move(*dag));
    });
  });
  Graphs graphs;
  join(graphs, parts);
  graphs.seconds = watch.seconds();
  return graphs;
}

Graphs planKernels(const CompileOrder& order) {
  const ProgramSource& source = order.source;
  std::vector<std::uint32_t> all(order.range.begin(), order.range.end());
  if (source.group_by_sharing) all = orderedBySharing(source.expressions, all, source.precision, source.math);
  Graphs graphs;
  graphs.ranges = rangesForDevice(source, all, codeWeights(source.precision, source.math), graphs.too_long);
  graphs.per_module =
      std::clamp<std::size_t>(graphs.ranges.size() / (kModulesPerThread * order.threads), 1, kKernelsPerModule);
  return graphs;
}

void addGraphs(Graphs& graphs, const CompileOrder& order, const std::atomic<bool>& cancelled) {
  const Stopwatch watch;
  std::vector<Graphs> made(graphs.ranges.size());
  tbb::parallel_for(std::size_t{0}, made.size(), [&](std::size_t g) {
    if (!cancelled.load(std::memory_order_relaxed)) addGraph(made[g], std::move(graphs.ranges[g]), order);
  });
  join(graphs, made);
  graphs.seconds = watch.seconds();
}

std::vector<Range> halvesOf(const Range& range) {
  const std::vector<std::uint32_t>& all = range.expressions;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  const std::size_t length = (range.length + 1) / 2;
  return {{{all.begin(), middle}, length}, {{middle, all.end()}, length}};
}

}  // namespace srjit
