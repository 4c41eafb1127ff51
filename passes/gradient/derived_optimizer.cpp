#include "passes/gradient/derived_optimizer.h"

namespace srjit {

ExpressionGraph DerivedOptimizer::run(const ExpressionView& tokens, std::uint32_t expression,
                                      const Derivation& derivation) {
  if (tokens.variableCount() > derivation.columns) {
    optimizer_.run(tokens, expression,
                   [&](Dag& dag, NodeId) { addRootsWithoutData(dag, derivation, tokens.parameterCount()); });
    return optimizer_.graph();
  }
  if (derivation.quantity == Quantity::kLoss) {
    optimizer_.run(tokens, expression, [&](Dag& dag, NodeId f) { addLossRoots(dag, f, derivation); });
    return optimizer_.graph();
  }
  optimizer_.run(tokens, expression);
  deriver_.run(optimizer_.graph(), derivation, tokens.parameterCount());
  return deriver_.graph();
}

}  // namespace srjit
