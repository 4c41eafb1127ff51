#include "passes/pass.h"
#include "passes/rebuild.h"

namespace srjit {

// A literal parameter has the shapeHash of a constant, so no operands change places here, and slots are numbered in the
// order of nodes: neither depends on the values.
Dag hoistLiterals(const Dag& dag, const PassContext&) {
  Dag to(dag.precision());
  rebuildInto(
      to, dag,
      [&](NodeId id) {
        const Node& node = dag.node(id);
        return node.kind == Token::Kind::kConstant ? to.literalParameter(node.value) : to.copyLeaf(dag, id);
      },
      [&](Op op, std::span<const NodeId> operands) { return to.apply(op, operands); });
  return to;
}

}  // namespace srjit
