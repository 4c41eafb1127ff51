#include "passes/gradient/derived_batch.h"

#include <limits>

namespace srjit {

DerivedBatch::DerivedBatch(Precision precision, Math math, const Derivation& derivation)
    : derivation_(derivation), optimizer_(precision, math), deriver_(precision, math), merged_(precision) {}

void DerivedBatch::add(const ExpressionView& tokens) {
  const ExpressionGraph graph = optimizer_.run(tokens, expressions_++, derivation_);
  merged_.copyNodes(graph.dag, graph.members, places_);
  for (const NodeId root : graph.roots) merged_.addRoot(places_[root]);
}

void DerivedBatch::add(const Dag& from, std::size_t root, const ExpressionView& tokens) {
  ++expressions_;
  if (tokens.variableCount() > derivation_.columns) return addNothing(tokens.parameterCount());
  deriver_.derive(from, from.roots()[root], derivation_, tokens.parameterCount(), merged_);
}

// The roots of an expression whose variables the data lack: evaluations give a failure instead.
void DerivedBatch::addNothing(std::size_t parameters) {
  for (std::size_t i = 0; i < derivation_.roots(parameters); ++i) {
    merged_.addRoot(merged_.constant(std::numeric_limits<double>::quiet_NaN()));
  }
}

Dag DerivedBatch::take() {
  expressions_ = 0;
  return takeScheduled(merged_, scheduler_, places_);
}

}  // namespace srjit
