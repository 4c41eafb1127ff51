#include <algorithm>

#include "passes/pass.h"
#include "passes/working_dag.h"

namespace srjit {

// A literal parameter has the shapeHash of a constant, so no operands change places here, and slots are numbered in the
// order of nodes: neither depends on the values.
void hoistLiterals(WorkingDag& work, const PassContext&) {
  Dag& dag = work.dag();
  if (std::ranges::none_of(dag.parameters(), &ParameterSource::isLiteral)) {
    dag.hoistConstants();
    return;
  }
  // Some were hoisted before: equal literals share one parameter.
  work.rebuild(
      [&](NodeId id) {
        const Node& node = dag.node(id);
        return work.keep(node.kind == Token::Kind::kConstant ? dag.literalParameter(node.value) : id);
      },
      [&](Op op, std::span<const NodeId> operands, NodeId same) {
        return work.keep(same != WorkingDag::kNone ? same : dag.apply(op, operands));
      });
}

}  // namespace srjit
