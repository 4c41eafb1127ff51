// A batch of expressions through the graph passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "ir/error.h"
#include "ir/expression.h"
#include "passes/dag.h"
#include "passes/pass.h"
#include "runtime/evaluation/program_source.h"

namespace srjit {

/// The graph of `members` after the passes, without dead nodes, which no root reaches; root i is members[i]. Passes may
/// come from outside of the library, so their graphs are checked: errors are kInvalid with the name of the pass that
/// threw, or whose graph does not match the members. Throws std::bad_alloc.
Result<Dag> optimizedDag(std::span<const Expression> members, const Pipeline& pipeline, Precision precision, Math math);

/// The same of the expressions of source.program whose numbers are `members`, with its passes; the roots are their
/// outputs. The graph passes source.filter, for code of `tier`. Throws an ErrorException
/// (kLimit) if source.deadline is over.
Result<Dag> optimizedDag(std::span<const std::uint32_t> members, const GraphSource& source, Tier tier);

/// The same, but isolates the expression for which a pass fails. Calls `take` with graphs of adjacent members, in
/// order, with the number of the first member and their count; an error has a count of 1.
using TakeDag = std::function<void(std::size_t first, std::size_t count, Result<Dag> dag)>;
void optimizedDags(std::span<const std::uint32_t> members, const GraphSource& source, Tier tier, const TakeDag& take);

}  // namespace srjit
