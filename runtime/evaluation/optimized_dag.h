// A batch of expressions through the graph passes.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "ir/error.h"
#include "ir/expression.h"
#include "passes/dag.h"
#include "passes/pass.h"
#include "runtime/evaluation/program_source.h"

namespace srjit {

/// The graph of `members` after the passes; root i is members[i]. Passes may come from programs outside, so what they
/// give is checked: errors are kInvalid with the name of the pass that threw, or whose graph does not fit the members.
/// Throws std::bad_alloc.
Result<Dag> optimizedDag(std::span<const Expression> members, const Pipeline& pipeline, Precision precision, Math math);

/// The same with the passes of source.program, where subtrees are read that source.subtrees has, as code for `tier`
/// reads them.
Result<Dag> optimizedDag(std::span<const Expression> members, const GraphSource& source, Tier tier);

/// The same, but a pass that fails is made to fail one expression alone: graphs of adjacent members, in order, are
/// given to `take` with the first one's number and how many they are; errors come with one.
using TakeDag = std::function<void(std::size_t first, std::size_t count, Result<Dag> dag)>;
void optimizedDags(std::span<const Expression> members, const GraphSource& source, Tier tier, const TakeDag& take);

}  // namespace srjit
