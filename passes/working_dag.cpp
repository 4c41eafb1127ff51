#include "passes/working_dag.h"

#include <utility>

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

void WorkingDag::commit() {
  marks_.resize(dag_.size());
  // By plain pointers: a store of a byte might change a vector's, as far as a compiler can tell.
  std::uint8_t* const marks = marks_.data();
  const Node* const nodes = dag_.nodes().data();
  const NodeId* const listed = next_.data();
  for (const NodeId root : dag_.roots()) marks[root] = kReached;
  std::size_t reached = 0;
  for (std::size_t i = next_.size(); i-- > 0;) {
    const NodeId id = listed[i];
    if (marks[id] != kReached) continue;
    ++reached;
    for (const NodeId operand : nodes[id].inputs()) marks[operand] = kReached;
  }
  order_.swap(next_);
  if (reached == order_.size()) return;
  // What is not reached is overwritten by the next, without a branch.
  NodeId* const out = order_.data();
  std::size_t count = 0;
  for (const NodeId id : order_) {
    out[count] = id;
    count += marks[id] == kReached ? 1 : 0;
  }
  order_.resize(count);
}

}  // namespace srjit
