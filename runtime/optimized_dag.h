// A batch of expressions through the graph passes.
#pragma once

#include <span>

#include "ir/error.h"
#include "ir/expression.h"
#include "passes/dag.h"
#include "passes/pass.h"
#include "runtime/program.h"

namespace srjit {

/// The graph of `members` after the passes; root i is members[i]. Passes may come from programs outside, so what they
/// give is checked: errors are kInvalid with the name of the pass that threw, or whose graph does not fit the members.
/// Throws std::bad_alloc.
Result<Dag> optimizedDag(std::span<const Expression> members, const Pipeline& pipeline, Precision precision, Math math);

/// The same with the passes of a program's `source`, and with values that are kept for it as variables, where that pays
/// in code for `tier` (runtime/kept_subtrees.h).
Result<Dag> optimizedDag(std::span<const Expression> members, const ProgramSource& source, Tier tier);

}  // namespace srjit
