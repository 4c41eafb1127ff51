#include "runtime/evaluation/program_source.h"

#include <algorithm>
#include <iterator>

#include <tbb/parallel_for.h>

#include "runtime/platform/aligned_buffer.h"

namespace srjit {

void ProgramSource::add(const Expression& expression) {
  expressions.push_back(expression);
  parameter_offsets.push_back(parameter_offsets.back() + expression.parameterCount());
  variables = std::max(variables, expression.variableCount());
  tokens += expression.size();
}

// Parallel, since the expressions may be in the caches of other cores: the cache misses take more time than the rest.
void ProgramSource::add(std::span<const Expression> more) {
  constexpr std::size_t kBlock = 1024;
  std::vector<ProgramSource> parts(ceilDivide(more.size(), kBlock));
  tbb::parallel_for(std::size_t{0}, parts.size(), [&](std::size_t i) {
    const auto block = more.subspan(i * kBlock, std::min(kBlock, more.size() - i * kBlock));
    parts[i].expressions.reserve(block.size());
    parts[i].parameter_offsets.reserve(block.size() + 1);
    for (const Expression& expression : block) parts[i].add(expression);
  });
  expressions.reserve(expressions.size() + more.size());
  parameter_offsets.reserve(parameter_offsets.size() + more.size());
  for (ProgramSource& part : parts) {
    const std::size_t before = parameter_offsets.back();
    std::move(part.expressions.begin(), part.expressions.end(), std::back_inserter(expressions));
    std::transform(part.parameter_offsets.begin() + 1, part.parameter_offsets.end(),
                   std::back_inserter(parameter_offsets), [&](std::size_t offset) { return before + offset; });
    variables = std::max(variables, part.variables);
    tokens += part.tokens;
  }
}

}  // namespace srjit
