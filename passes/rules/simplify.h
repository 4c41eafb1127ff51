// The rules of simplify.def and the engine that applies them.
#pragma once

#include <span>
#include <string_view>

#include "ir/expression.h"
#include "ir/numeric.h"
#include "passes/rewrite_log.h"
#include "passes/working_dag.h"

namespace srjit {

/// One row of simplify.def without its condition, which is conditionHolds() (passes/rules/tables.h).
struct Rule {
  Math mode;
  std::string_view pattern_text;
  std::string_view replacement_text;
  Expression pattern;
  Expression replacement;
};

/// All rules, in the order of the table. Thread-safe.
std::span<const Rule> allRules();

/// Applies the rules of `mode` and of stricter modes from the leaves to the roots until none matches, and computes
/// operators over constants, as Rewriter does (passes/rules/rewriter.h). Not recursive. `log`, if given, gets the
/// replaced nodes.
void simplify(WorkingDag& work, Math mode, RewriteLog* log = nullptr);

}  // namespace srjit
