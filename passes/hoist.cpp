#include <algorithm>

#include "passes/pass.h"
#include "passes/working_dag.h"

namespace srjit {

// Neither the order of operands nor the slots of parameters depend on the values: a literal parameter has the shapeHash
// of a constant, so no operands are exchanged, and slots are numbered in the order of nodes.
void hoistLiterals(WorkingDag& work, const PassContext&) {
  Dag& dag = work.dag();
  if (std::ranges::none_of(dag.parameters(), &ParameterSource::isLiteral)) {
    dag.hoistConstants();
    return;
  }
  // Some literals were hoisted before: a constant that equals one of them shares its parameter.
  work.rebuild(
      [&](NodeId id) {
        const Node& node = dag.node(id);
        return node.kind == Token::Kind::kConstant ? dag.literalParameter(node.value) : id;
      },
      [&](Op op, const Operands& operands) { return dag.apply(op, operands); });
}

}  // namespace srjit
