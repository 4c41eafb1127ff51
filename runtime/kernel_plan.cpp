#include "runtime/kernel_plan.h"

#include <algorithm>
#include <utility>

#include <tbb/parallel_for.h>

#include "runtime/aligned_buffer.h"
#include "runtime/clock.h"
#include "runtime/optimized_dag.h"
#include "runtime/sharing_order.h"

namespace srjit {
namespace {

// Instructions a row (codeWeight()) of one kernel, at most: more do not stay in the instruction cache.
constexpr std::size_t kMaxWeight = 1600;

/// Kernels of one module, at most: the driver loads modules one after another, and each takes it a while. As long as
/// there are kModulesPerThread for every thread, so that all of them compile to the end.
constexpr std::size_t kKernelsPerModule = 8, kModulesPerThread = 2;

std::size_t weightOf(const Expression& expression, const CodeWeights& weights) {
  std::size_t weight = 0;
  for (const Token& token : expression.tokens()) {
    if (token.kind == Token::Kind::kOp) weight += weights[static_cast<std::size_t>(token.op)];
  }
  return weight;
}

/// What came of one group: several where passes refused it as a whole.
struct Optimized {
  std::vector<KernelGroup> groups;
  std::vector<Dag> dags;
  std::vector<Failure> failures;

  void add(KernelGroup group, const ProgramSource& source) {
    Result<Dag> dag = graphOf(group, source);
    if (dag) {
      groups.push_back(std::move(group));
      dags.push_back(std::move(*dag));
    } else if (group.expressions.size() == 1) {
      failures.push_back({group.expressions[0], std::move(dag).error()});
    } else {
      for (KernelGroup& half : halvesOf(group)) add(std::move(half), source);
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
  const CodeWeights weights = codeWeights(source.precision, source.math);
  KernelPlan plan;
  std::vector<KernelGroup>& groups = plan.groups;
  for (const std::uint32_t e : order) {
    const Expression& expression = source.expressions[e];
    if (expression.size() > kMaxCompiledDeviceTokens) {
      plan.too_long.push_back(e);
      continue;
    }
    const std::size_t weight = weightOf(expression, weights);
    if (groups.empty() || groups.back().expressions.size() == kExpressionsPerKernel ||
        groups.back().weight + weight > kMaxWeight) {
      groups.emplace_back();
    }
    groups.back().expressions.push_back(e);
    groups.back().weight += weight;
  }
  plan.kernels_per_module =
      std::clamp<std::size_t>(groups.size() / (kModulesPerThread * request.threads), 1, kKernelsPerModule);
  return plan;
}

Result<Dag> graphOf(const KernelGroup& group, const ProgramSource& source) {
  std::vector<Expression> members;
  members.reserve(group.expressions.size());
  for (const std::uint32_t e : group.expressions) members.push_back(source.expressions[e]);
  return optimizedDag(members, source, Tier::kCompile);
}

void addGraphs(KernelPlan& plan, const CodeRequest& request, const std::atomic<bool>& cancelled) {
  const Stopwatch watch;
  std::vector<Optimized> optimized(plan.groups.size());
  tbb::parallel_for(std::size_t{0}, plan.groups.size(), [&](std::size_t g) {
    if (!cancelled.load(std::memory_order_relaxed)) optimized[g].add(std::move(plan.groups[g]), request.source);
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
