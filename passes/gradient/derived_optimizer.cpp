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
  const ExpressionGraph graph = optimizer_.graph();
  deriver_.run(graph.dag, graph.root(), derivation, tokens.parameterCount());
  return deriver_.graph();
}

}  // namespace srjit
