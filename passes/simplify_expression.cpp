#include "passes/simplify_expression.h"

#include <limits>

#include "passes/rules/simplify.h"

namespace srjit {

Expression simplify(const Expression& expression, Math math, Precision precision) {
  const Dag graph = Dag::fromExpressions({&expression, 1}, precision);
  // Every rule reduces the weight of the tree (simplify.def), so there is no need to bound the number of tokens.
  return simplify(graph, ruleClassOf(math), math).toExpression(0, std::numeric_limits<std::size_t>::max()).value();
}

}  // namespace srjit
