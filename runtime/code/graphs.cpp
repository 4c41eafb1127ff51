#include "runtime/code/graphs.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include <tbb/parallel_for.h>

#include "compiler/direct/emitter.h"
#include "compiler/lowering/code_weights.h"
#include "runtime/evaluation/optimized_dag.h"
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

/// Adds the graph of a group, or those of its parts where passes refuse it as a whole.
void addOptimized(Graphs& to, KernelGroup group, const CodeRequest& request) {
  Result<Dag> dag = optimizedDag(group.expressions, request.graphSource(), Tier::kCompile);
  if (dag) {
    to.groups.push_back(std::move(group));
    to.dags.push_back(std::move(*dag));
  } else if (group.expressions.size() == 1) {
    to.failures.push_back({group.expressions[0], std::move(dag).error()});
  } else {
    for (KernelGroup& half : halvesOf(group)) addOptimized(to, std::move(half), request);
  }
}

/// Replaces the groups of `all` by those of `parts`, in order, with their graphs and failures.
void join(Graphs& all, std::vector<Graphs>& parts) {
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  all.groups.clear();
  for (Graphs& part : parts) {
    append(all.groups, part.groups);
    append(all.dags, part.dags);
    append(all.failures, part.failures);
  }
  std::ranges::sort(all.failures, {}, &Failure::expression);
  for (const Dag& dag : all.dags) all.nodes += dag.size();
}

}  // namespace

std::size_t Graphs::modules() const noexcept { return ceilDivide(groups.size(), per_module); }

GraphSpan Graphs::module(std::size_t number) const {
  const std::size_t first = number * per_module;
  return GraphSpan{groups, dags}.part(first, std::min(per_module, groups.size() - first));
}

Graphs directGraphs(const GraphSource& source, unsigned threads) {
  const Stopwatch watch;
  const std::size_t count = source.program.expressions.size();
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0U);
  const std::size_t wanted = count / (std::size_t{4} * threads) / kDirectRoots * kDirectRoots;
  const std::size_t size = std::clamp<std::size_t>(wanted, kDirectRoots, kMostOfDirectGraph);
  std::vector<Graphs> parts(ceilDivide(count, size));
  tbb::parallel_for(std::size_t{0}, parts.size(), [&](std::size_t i) {
    const auto members = std::span(all).subspan(i * size, std::min(size, count - i * size));
    optimizedDags(members, source, Tier::kDirect, [&](std::size_t first, std::size_t several, Result<Dag> dag) {
      if (!dag) return parts[i].failures.push_back({members[first], std::move(dag).error()});
      const auto own = members.subspan(first, several);
      parts[i].groups.push_back({.expressions = {own.begin(), own.end()}});
      parts[i].dags.push_back(std::move(*dag));
    });
  });
  Graphs graphs;
  join(graphs, parts);
  graphs.seconds = watch.seconds();
  return graphs;
}

Graphs planKernels(const CodeRequest& request) {
  const ProgramSource& source = request.source;
  std::vector<std::uint32_t> order(request.chosen.begin(), request.chosen.end());
  if (source.group_by_sharing) order = orderedBySharing(source.expressions, order, source.precision, source.math);
  KernelGroups made = groupForKernels(source, order, codeWeights(source.precision, source.math));
  Graphs graphs;
  graphs.groups = std::move(made.groups);
  graphs.too_long = std::move(made.too_long);
  graphs.per_module =
      std::clamp<std::size_t>(graphs.groups.size() / (kModulesPerThread * request.threads), 1, kKernelsPerModule);
  return graphs;
}

void addGraphs(Graphs& graphs, const CodeRequest& request, const std::atomic<bool>& cancelled) {
  const Stopwatch watch;
  std::vector<Graphs> optimized(graphs.groups.size());
  tbb::parallel_for(std::size_t{0}, graphs.groups.size(), [&](std::size_t g) {
    if (!cancelled.load(std::memory_order_relaxed)) addOptimized(optimized[g], std::move(graphs.groups[g]), request);
  });
  join(graphs, optimized);
  graphs.seconds = watch.seconds();
}

std::vector<KernelGroup> halvesOf(const KernelGroup& group) {
  const std::vector<std::uint32_t>& all = group.expressions;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  const std::size_t weight = (group.weight + 1) / 2;
  return {{{all.begin(), middle}, weight}, {{middle, all.end()}, weight}};
}

}  // namespace srjit
