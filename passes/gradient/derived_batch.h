// The graph of the derived quantities of a batch of expressions.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/population.h"
#include "passes/dag.h"
#include "passes/gradient/derived_optimizer.h"
#include "passes/gradient/deriver.h"
#include "passes/schedule.h"

namespace srjit {

/// Like BatchOptimizer, with derivation.roots() roots for each expression, in order. Not thread-safe.
class DerivedBatch {
 public:
  DerivedBatch(Precision precision, Math math, const Derivation& derivation);

  /// Adds the next expression, after the standard passes.
  void add(const ExpressionView& tokens);
  /// The same of an expression that other passes made root number `root` of a graph.
  void add(const Dag& from, std::size_t root, const ExpressionView& tokens);
  /// The graph of all expressions since the last call.
  Dag take();

 private:
  Derivation derivation_;
  DerivedOptimizer optimizer_;
  Deriver deriver_;  ///< of expressions that other passes made
  Dag merged_;
  std::uint32_t expressions_ = 0;
  Scheduler scheduler_;
  std::vector<NodeId> places_;
};

}  // namespace srjit
