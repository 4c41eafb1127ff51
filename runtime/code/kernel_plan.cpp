#include "runtime/code/kernel_plan.h"

#include <algorithm>
#include <utility>

#include <tbb/parallel_for.h>

#include "compiler/kernels/sharing_order.h"
#include "runtime/evaluation/optimized_dag.h"
#include "runtime/platform/aligned_buffer.h"
#include "runtime/platform/clock.h"

namespace srjit {
namespace {

/// Kernels of one module, at most: the driver loads modules one after another, and each takes it a while. As long as
/// there are kModulesPerThread for every thread, so that all of them compile to the end.
constexpr std::size_t kKernelsPerModule = 8, kModulesPerThread = 2;

/// What came of one group: several where passes refused it as a whole.
struct Optimized {
  std::vector<KernelGroup> groups;
  std::vector<Dag> dags;
  std::vector<Failure> failures;

  void add(KernelGroup group, const CodeRequest& request) {
    Result<Dag> dag = graphOf(group, request);
    if (dag) {
      groups.push_back(std::move(group));
      dags.push_back(std::move(*dag));
    } else if (group.expressions.size() == 1) {
      failures.push_back({group.expressions[0], std::move(dag).error()});
    } else {
      for (KernelGroup& half : halvesOf(group)) add(std::move(half), request);
    }
  }
};

template <class T>
void append(std::vector<T>& all, std::vector<T>& more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

std::size_t KernelPlan::modules() const noexcept { return ceilDivide(groups.size(), kernels_per_module); }

PlannedModule KernelPlan::module(std::size_t number) const {
  const std::size_t first = number * kernels_per_module;
  const std::size_t count = std::min(kernels_per_module, groups.size() - first);
  return {std::span(groups).subspan(first, count),
          dags.empty() ? std::span<const Dag>() : std::span(dags).subspan(first, count)};
}

KernelPlan planKernels(const CodeRequest& request) {
  const ProgramSource& source = request.source;
  std::vector<std::uint32_t> order(request.chosen.begin(), request.chosen.end());
  if (source.group_by_sharing) order = orderedBySharing(source.expressions, order, source.precision, source.math);
  KernelGroups made = groupForKernels(source, order, codeWeights(source.precision, source.math));
  KernelPlan plan;
  plan.groups = std::move(made.groups);
  plan.too_long = std::move(made.too_long);
  plan.kernels_per_module =
      std::clamp<std::size_t>(plan.groups.size() / (kModulesPerThread * request.threads), 1, kKernelsPerModule);
  return plan;
}

Result<Dag> graphOf(const KernelGroup& group, const CodeRequest& request) {
  return optimizedDag(group.expressions, request.graphSource(), Tier::kCompile);
}

void addGraphs(KernelPlan& plan, const CodeRequest& request, const std::atomic<bool>& cancelled) {
  const Stopwatch watch;
  std::vector<Optimized> optimized(plan.groups.size());
  tbb::parallel_for(std::size_t{0}, plan.groups.size(), [&](std::size_t g) {
    if (!cancelled.load(std::memory_order_relaxed)) optimized[g].add(std::move(plan.groups[g]), request);
  });
  plan.groups.clear();
  for (Optimized& some : optimized) {
    append(plan.groups, some.groups);
    append(plan.dags, some.dags);
    append(plan.failures, some.failures);
  }
  std::ranges::sort(plan.failures, {}, &Failure::expression);
  for (const Dag& dag : plan.dags) plan.nodes += dag.size();
  plan.seconds_passes = watch.seconds();
}

std::array<KernelGroup, 2> halvesOf(const KernelGroup& group) {
  const std::vector<std::uint32_t>& all = group.expressions;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  const std::size_t weight = (group.weight + 1) / 2;
  return {KernelGroup{{all.begin(), middle}, weight}, KernelGroup{{middle, all.end()}, weight}};
}

}  // namespace srjit
