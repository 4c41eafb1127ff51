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
  for (const NodeId root : dag_.roots()) marks_[root] = kReached;
  bool all = true;
  for (std::size_t i = next_.size(); i-- > 0;) {
    const NodeId id = next_[i];
    if (marks_[id] != kReached) {
      all = false;
      continue;
    }
    for (const NodeId operand : dag_.node(id).inputs()) marks_[operand] = kReached;
  }
  order_.swap(next_);
  if (!all) std::erase_if(order_, [&](NodeId id) { return marks_[id] != kReached; });
}

}  // namespace srjit
