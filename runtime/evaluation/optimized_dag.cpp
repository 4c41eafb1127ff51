#include "runtime/evaluation/optimized_dag.h"

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

Result<Dag> pipelineDag(std::span<const std::uint32_t> members, const ProgramSource& program) {
  std::vector<Expression> expressions;
  for (const std::uint32_t e : members) expressions.push_back(program.expressions[e].expression());
  return optimizedDag(expressions, *program.pipeline, program.precision, program.math);
}

Result<Dag> derivedDag(std::span<const std::uint32_t> members, const ProgramSource& program) {
  BatchOptimizer batch(program.precision, program.math, program.derivation);
  Result<Dag> values = pipelineDag(members, program);
  if (!values) return values;
  for (std::size_t i = 0; i < members.size(); ++i) batch.add(*values, i, program.expressions[members[i]]);
  return batch.take();
}

}  // namespace

Result<Dag> optimizedDag(std::span<const Expression> members, const Pipeline& pipeline, Precision precision,
                         Math math) {
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

Result<Dag> optimizedDag(std::span<const std::uint32_t> members, const GraphSource& source, Tier tier) {
  source.deadline.check();
  const ProgramSource& program = source.program;
  const auto make = [&]() -> Result<Dag> {
    if (program.pipeline) return program.derivation ? derivedDag(members, program) : pipelineDag(members, program);
    BatchOptimizer optimizer(program.precision, program.math, program.derivation);
    for (const std::uint32_t e : members) optimizer.add(program.expressions[e]);
    return optimizer.take();
  };
  Result<Dag> dag = make();
  if (!dag || source.filter == nullptr) return dag;
  std::size_t tokens = 0;
  for (const std::uint32_t e : members) tokens += program.expressions[e].size();
  return source.filter->pass(std::move(*dag), tier, tokens);
}

void optimizedDags(std::span<const std::uint32_t> members, const GraphSource& source, Tier tier, const TakeDag& take) {
  const auto optimize = [&](const auto& self, std::size_t first, std::size_t count) -> void {
    Result<Dag> dag = optimizedDag(members.subspan(first, count), source, tier);
    if (dag || count <= 1) return take(first, count, std::move(dag));
    self(self, first, count / 2);
    self(self, first + count / 2, count - count / 2);
  };
  optimize(optimize, 0, members.size());
}

}  // namespace srjit
