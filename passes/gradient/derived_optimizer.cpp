#include "passes/gradient/derived_optimizer.h"

#include <limits>

namespace srjit {

ExpressionGraph DerivedOptimizer::run(const ExpressionView& tokens, std::uint32_t expression,
                                      const Derivation& derivation) {
  if (tokens.variableCount() > derivation.columns) {
    const std::size_t roots = derivation.roots(tokens.parameterCount());
    optimizer_.run(tokens, expression, [&](Dag& dag, NodeId) {
      const NodeId nothing = dag.constant(std::numeric_limits<double>::quiet_NaN());
      for (std::size_t i = 0; i < roots; ++i) dag.addRoot(nothing);
    });
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
