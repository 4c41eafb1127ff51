#include "passes/gradient/derived_batch.h"

namespace srjit {

DerivedBatch::DerivedBatch(Precision precision, Math math, const Derivation& derivation)
    : derivation_(derivation), optimizer_(precision, math), deriver_(precision, math), merged_(precision) {}

void DerivedBatch::add(const ExpressionView& tokens) {
  optimizer_.run(tokens, expressions_++, derivation_).appendTo(merged_, places_);
}

void DerivedBatch::add(const Dag& from, std::size_t root, const ExpressionView& tokens) {
  ++expressions_;
  if (tokens.variableCount() > derivation_.columns) {
    return addRootsWithoutData(merged_, derivation_, tokens.parameterCount());
  }
  deriver_.derive(from, from.roots()[root], derivation_, tokens.parameterCount(), merged_);
}

Dag DerivedBatch::take() {
  expressions_ = 0;
  return takeScheduled(merged_, scheduler_, places_);
}

}  // namespace srjit
