#include "runtime/evaluation/code_groups.h"

namespace srjit {
namespace {

// Maximum instructions per row (instructionsOf()) of one kernel: longer code exceeds the instruction cache.
constexpr std::size_t kMaxWeight = 1600;

}  // namespace

KernelGroups groupForKernels(const ProgramSource& source, std::span<const std::uint32_t> order,
                             const CodeWeights& weights, std::size_t longest) {
  KernelGroups made;
  std::vector<KernelGroup>& groups = made.groups;
  for (const std::uint32_t e : order) {
    const ExpressionView expression = source.expressions[e];
    const std::size_t factor = source.lengthFactor(e);
    const std::size_t weight = factor * instructionsOf(expression, weights);
    // The sum is a bound, and spares nearly every expression a second walk.
    if (weight + expression.size() > longest && factor * deviceCodeLength(expression, weights) > longest) {
      made.too_long.push_back(e);
      continue;
    }
    if (groups.empty() || groups.back().expressions.size() == kExpressionsPerKernel ||
        groups.back().weight + weight > kMaxWeight) {
      groups.emplace_back();
    }
    groups.back().expressions.push_back(e);
    groups.back().weight += weight;
  }
  return made;
}

std::vector<HostGroup> groupForHost(const ProgramSource& source, Tier tier, std::size_t longest) {
  std::vector<HostGroup> groups;
  std::size_t group_outputs = 0;
  for (std::uint32_t e = 0; e < source.expressions.size(); ++e) {
    const std::size_t length = source.lengthFactor(e) * hostCodeLength(source.expressions[e]);
    const std::size_t outputs = source.outputOffset(e + 1) - source.outputOffset(e);
    const bool compiled = tier == Tier::kCompile && length <= longest;
    const std::size_t limit = compiled ? kCompiledPerBatch : kInterpretedPerBatch;
    if (groups.empty() || groups.back().compiled != compiled || group_outputs + outputs > limit ||
        (compiled && groups.back().length + length > kMaxCodeLength)) {
      groups.push_back({e, e, compiled});
      group_outputs = 0;
    }
    group_outputs += outputs;
    groups.back().last = e + 1;
    groups.back().length += length;
  }
  return groups;
}

}  // namespace srjit
