// Derives one expression after another from tokens. Engines prepare derived programs with it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ir/population.h"
#include "passes/dag.h"
#include "passes/expression_graph.h"
#include "passes/expression_optimizer.h"
#include "passes/gradient/derivation.h"
#include "passes/gradient/deriver.h"

namespace srjit {

/// Like ExpressionOptimizer, with derivation.roots() roots. The terms of a loss are added to the graph of the
/// expression where it is; derivatives are made in a copy of it, since their rules and multiply-adds must not depend on
/// what the passes before left behind. Not thread-safe.
class DerivedOptimizer {
 public:
  DerivedOptimizer(Precision precision, Math math) : optimizer_(precision, math), deriver_(precision, math) {}

  /// Of expression number `expression` of a batch. Roots are NaN if it has more variables than derivation.columns:
  /// evaluations give a failure instead. Valid until the next run.
  ExpressionGraph run(const ExpressionView& tokens, std::uint32_t expression, const Derivation& derivation);

 private:
  ExpressionOptimizer optimizer_;
  Deriver deriver_;
};

}  // namespace srjit
