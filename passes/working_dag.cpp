#include "passes/working_dag.h"

#include <algorithm>
#include <utility>

#include "passes/pass.h"

namespace srjit {

WorkingDag::WorkingDag(Dag dag) : dag_(std::move(dag)) {
  begin();
  next_.resize(dag_.size());
  for (NodeId id = 0; id < dag_.size(); ++id) next_[id] = id;
  commit();
}

void WorkingDag::begin() {
  marks_.assign(dag_.size(), 0);
  next_.clear();
  next_.reserve(dag_.size());
}

NodeId WorkingDag::keepTree(NodeId id) {
  if (isKept(id)) return id;
  path_.assign(1, id);
  while (!path_.empty()) {
    const NodeId next = path_.back();
    const std::size_t before = path_.size();
    for (const NodeId operand : dag_.node(next).inputs()) {
      if (!isKept(operand)) path_.push_back(operand);
    }
    if (path_.size() > before) continue;
    path_.pop_back();
    keep(next);
  }
  return id;
}

void WorkingDag::commit() {
  marks_.resize(dag_.size());
  // Plain pointers: a store through a byte pointer may alias the vectors, so a compiler would load theirs again.
  std::uint8_t* const marks = marks_.data();
  const Node* const nodes = dag_.nodes().data();
  NodeId* const listed = next_.data();
  for (const NodeId root : dag_.roots()) marks[root] = kReached;
  // Users come before operands; live nodes move to the end of the list.
  std::size_t first = next_.size();
  for (std::size_t i = next_.size(); i-- > 0;) {
    const NodeId id = listed[i];
    if (marks[id] != kReached) continue;
    listed[--first] = id;
    const Node& node = nodes[id];
    if (node.kind != Token::Kind::kOp) continue;
    const int arity = arityOf(node.op);
    marks[node.operands[0]] = kReached;
    if (arity > 1) marks[node.operands[1]] = kReached;
    if (arity > 2) marks[node.operands[2]] = kReached;
  }
  next_.erase(next_.begin(), next_.begin() + static_cast<std::ptrdiff_t>(first));
  order_.swap(next_);
}

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
