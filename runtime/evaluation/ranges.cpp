#include "runtime/evaluation/ranges.h"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "passes/expression_optimizer.h"
#include "passes/gradient/deriver.h"
#include "passes/working_dag.h"

namespace srjit {

namespace {

// Maximum instructions per row (instructionsOf()) of one kernel: longer code exceeds the instruction cache.
constexpr std::size_t kMaxKernelLength = 1600;

}  // namespace

std::vector<Range> rangesForDevice(const ProgramSource& source, std::span<const std::uint32_t> order,
                                   const CodeWeights& weights, std::vector<std::uint32_t>& too_long,
                                   std::size_t longest) {
  std::vector<Range> ranges;
  for (const std::uint32_t e : order) {
    const ExpressionView expression = source.expressions[e];
    const std::size_t factor = source.lengthFactor(e);
    const std::size_t length = factor * instructionsOf(expression, weights);
    // The sum is a bound, and spares nearly every expression a second walk.
    if (length + expression.size() > longest && factor * deviceCodeLength(expression, weights) > longest) {
      too_long.push_back(e);
      continue;
    }
    if (ranges.empty() || ranges.back().expressions.size() == kExpressionsPerKernel ||
        ranges.back().length + length > kMaxKernelLength) {
      ranges.emplace_back();
    }
    ranges.back().expressions.push_back(e);
    ranges.back().length += length;
  }
  return ranges;
}

std::vector<Range> rangesForHost(const ProgramSource& source, Tier tier, std::size_t longest) {
  std::vector<Range> ranges;
  std::size_t all_outputs = 0;
  for (std::uint32_t e = 0; e < source.expressions.size(); ++e) {
    const std::size_t length = source.lengthFactor(e) * hostCodeLength(source.expressions[e]);
    const std::size_t outputs = source.outputOffset(e + 1) - source.outputOffset(e);
    const bool is_compiled = tier == Tier::kCompile && length <= longest;
    const std::size_t limit = is_compiled ? kCompiledPerRange : kInterpretedPerRange;
    if (ranges.empty() || ranges.back().is_compiled != is_compiled || all_outputs + outputs > limit ||
        (is_compiled && ranges.back().length + length > kMaxCodeLength)) {
      ranges.push_back({.expressions = {}, .length = 0, .is_compiled = is_compiled});
      all_outputs = 0;
    }
    all_outputs += outputs;
    ranges.back().expressions.push_back(e);
    ranges.back().length += length;
  }
  return ranges;
}

namespace {

// Passes may come from outside of the library, so every index that later steps use is checked here.
std::optional<std::string> misfit(const Dag& dag, std::span<const Expression> members, Precision precision) {
  std::uint32_t variables = 0;
  for (const Expression& member : members) variables = std::max(variables, member.variableCount());
  if (dag.precision() != precision)
    return fmt::format("a graph in {}, not in {}", nameOf(dag.precision()), nameOf(precision));
  if (dag.roots().size() != members.size()) {
    return fmt::format("a graph of {} roots for {} expressions", dag.roots().size(), members.size());
  }
  for (const NodeId root : dag.roots()) {
    if (root >= dag.size()) return fmt::format("root %{} of a graph of {} nodes", root, dag.size());
  }
  if (dag.variableCount() > variables) {
    return fmt::format("variable x{}, which no expression uses", dag.variableCount() - 1);
  }
  for (const ParameterSource& source : dag.parameters()) {
    if (source.isLiteral()) continue;
    if (source.expression >= members.size() || source.index >= members[source.expression].parameterCount()) {
      return fmt::format("parameter p{} of expression {}, which does not exist", source.index, source.expression);
    }
  }
  return std::nullopt;
}

Result<Dag> runPipeline(std::span<const Expression> members, const Pipeline& pipeline, Precision precision, Math math) {
  Dag dag = Dag::fromExpressions(members, precision);
  std::size_t done = 0;
  const auto failure = [&](std::string_view what) {
    return Error{Errc::kInvalid, fmt::format("pass {}: {}", pipeline.passes()[done].name, what), {}};
  };
  std::optional<Error> wrong;
  const Pipeline::Observer check = [&](const Pass&, const Dag& result, double) {
    if (wrong) return;
    if (const auto what = misfit(result, members, precision)) wrong = failure(*what);
    ++done;
  };
  // An observer makes the pipeline build a Dag after every pass. The library's own passes need none.
  const bool ours = std::ranges::all_of(pipeline.passes(), [](const Pass& pass) { return pass.rewrite != nullptr; });
  try {
    const PassContext context{.math = math};
    dag = pipeline.run(std::move(dag), context, ours ? Pipeline::Observer() : check);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& thrown) {
    if (!wrong) wrong = failure(thrown.what());
  } catch (...) {
    if (!wrong) wrong = failure("an exception without a message");
  }
  // The library's own passes keep roots, but for `differentiate`, which is for other callers.
  if (!wrong && dag.roots().size() != members.size()) {
    wrong = Error{Errc::kInvalid,
                  fmt::format("the passes give {} roots for {} expressions", dag.roots().size(), members.size()),
                  {}};
  }
  if (wrong) return std::move(*wrong);
  // A pass of a program outside may leave dead nodes.
  const bool live = pipeline.passes().empty() || pipeline.passes().back().rewrite != nullptr;
  return live ? std::move(dag) : WorkingDag(std::move(dag)).result();
}

Result<Dag> pipelineDag(std::span<const std::uint32_t> members, const ProgramSource& program) {
  std::vector<Expression> expressions;
  for (const std::uint32_t e : members) expressions.push_back(program.expressions[e].expression());
  return runPipeline(expressions, *program.pipeline, program.precision, program.math);
}

Result<Dag> derivedDag(std::span<const std::uint32_t> members, const ProgramSource& program) {
  BatchOptimizer batch(program.precision, program.math, program.derivation);
  Result<Dag> values = pipelineDag(members, program);
  if (!values) return values;
  for (std::size_t i = 0; i < members.size(); ++i) batch.add(*values, i, program.expressions[members[i]]);
  return batch.take();
}

}  // namespace

Result<Dag> graphOf(const CompileOrder& order) {
  order.deadline.check();
  const ProgramSource& source = order.source;
  const auto make = [&]() -> Result<Dag> {
    if (source.pipeline) return source.derivation ? derivedDag(order.range, source) : pipelineDag(order.range, source);
    BatchOptimizer optimizer(source.precision, source.math, source.derivation, source.simplify);
    for (const std::uint32_t e : order.range) optimizer.add(source.expressions[e]);
    return optimizer.take();
  };
  Result<Dag> dag = make();
  if (!dag || order.filter == nullptr) return dag;
  std::size_t tokens = 0;
  for (const std::uint32_t e : order.range) tokens += source.expressions[e].size();
  return order.filter->pass(std::move(*dag), order.tier, tokens);
}

void graphsOf(const CompileOrder& order, const TakeDag& take) {
  const auto make = [&](const auto& self, std::size_t first, std::size_t count) -> void {
    Result<Dag> dag = graphOf(order.of(order.range.subspan(first, count)));
    if (dag || count <= 1) return take(first, count, std::move(dag));
    self(self, first, count / 2);
    self(self, first + count / 2, count - count / 2);
  };
  make(make, 0, order.range.size());
}

std::vector<PopulationView> divide(const PopulationView& population, std::size_t count) {
  std::vector<PopulationView> parts;
  const std::span<const std::int64_t> offsets = population.offsets;
  std::size_t first = 0;
  for (std::size_t p = 1; p < count && population.size() > 0; ++p) {
    const auto end = static_cast<std::int64_t>(population.codes.size() * p / count);
    const auto last = static_cast<std::size_t>(std::ranges::lower_bound(offsets, end) - offsets.begin());
    if (last <= first || last >= population.size()) continue;
    parts.push_back(population);
    parts.back().offsets = offsets.subspan(first, last - first + 1);
    first = last;
  }
  parts.push_back(population);
  if (first > 0) parts.back().offsets = offsets.subspan(first);
  return parts;
}

}  // namespace srjit
