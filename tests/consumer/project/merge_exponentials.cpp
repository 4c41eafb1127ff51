// A pass of a program outside the repository: the worked example of docs/internals/passes.md
// (tests/docs/check_pages.py).
#include <srjit/ir/ops.h>
#include <srjit/passes/pass.h>

namespace {

using namespace srjit;

/// exp(x) * exp(y) -> exp(x + y), wherever it stands.
Dag mergeExponentials(const Dag& from, const PassContext&) {
  Dag to(from.precision());
  std::vector<NodeId> image(from.size());  // the node of `to` for every node of `from`
  const auto isExp = [&](NodeId id) { return to.node(id).kind == Token::Kind::kOp && to.node(id).op == Op::kExp; };
  for (NodeId id = 0; id < from.size(); ++id) {  // operands have smaller ids, so they are done
    const Node& node = from.node(id);
    if (node.kind != Token::Kind::kOp) {
      image[id] = to.copyLeaf(from, id);
      continue;
    }
    std::vector<NodeId> operands;
    for (const NodeId operand : node.inputs()) operands.push_back(image[operand]);
    if (node.op == Op::kMul && isExp(operands[0]) && isExp(operands[1])) {
      const NodeId sum = to.apply(Op::kAdd, {to.node(operands[0]).operands[0], to.node(operands[1]).operands[0]});
      image[id] = to.apply(Op::kExp, {sum});
    } else {
      image[id] = to.apply(node.op, operands);
    }
  }
  for (const NodeId root : from.roots()) to.addRoot(image[root]);
  return to;
}

const Status kRegistered =
    registerPass({"merge-exp", mergeExponentials, Exactness::kBounded, "one exponential instead of two"});

}  // namespace
