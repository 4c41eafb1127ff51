#include "passes/members.h"

#include <algorithm>

namespace srjit {

// Operands have smaller ids than their users, so a sweep from the last root down meets every user before its operands.
void MemberSweep::run(const Dag& dag, std::span<const NodeId> roots) {
  // Absent operands are counted in one of kOthers other places: a branch would be hard to predict, and in one place,
  // each count would wait for the one before.
  constexpr std::size_t kOthers = 8;
  const std::size_t size = dag.size();
  if (uses_.size() < size + kOthers) uses_.resize(size + kOthers);
  if (list_.size() < size) list_.resize(size);
  std::uint32_t* const uses = uses_.data();
  std::fill_n(uses, size, 0);
  NodeId last = 0;
  for (const NodeId root : roots) {
    ++uses[root];
    last = std::max(last, root);
  }
  NodeId* const end = list_.data() + size;
  NodeId* first = end;
  std::uint32_t most_uses = 1;
  for (NodeId id = last + 1; id-- > 0;) {
    if (uses[id] == 0) continue;
    *--first = id;
    const Node& node = dag.node(id);
    most_uses |= uses[id] * std::uint32_t{node.isOperator()};
    const auto other = static_cast<NodeId>(size + id % kOthers);
    const auto count = [&](std::uint32_t k) {
      const NodeId counts = 0 - NodeId{k < node.operand_count};
      ++uses[(node.operands[k] & counts) | (other & ~counts)];
    };
    count(0);
    count(1);
    if (node.operand_count > 2) ++uses[node.operands[2]];
  }
  members_ = {first, end};
  is_shared_ = most_uses > 1;
}

void RootMembers::collect(const Dag& dag, std::span<const NodeId> roots, NodeId first) {
  for (const std::vector<NodeId>* used : {&members_, &others_}) {
    for (const NodeId id : *used) uses_[id] = 0;
  }
  members_.clear();
  others_.clear();
  uses_.resize(std::max(uses_.size(), dag.size()));
  const auto use = [&](NodeId id) {
    if (uses_[id]++ > 0) return;
    (id < first ? others_ : members_).push_back(id);
  };
  for (const NodeId root : roots) use(root);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    for (const NodeId operand : dag.node(members_[i]).inputs()) use(operand);
  }
  sortMet(members_);
}

void sortMet(std::span<NodeId> nodes) {
  constexpr std::size_t kFew = 64;
  if (nodes.size() > kFew) {
    std::ranges::sort(nodes);
    return;
  }
  std::ranges::reverse(nodes);
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    const NodeId id = nodes[i];
    std::size_t place = i;
    for (; place > 0 && nodes[place - 1] > id; --place) nodes[place] = nodes[place - 1];
    nodes[place] = id;
  }
}

}  // namespace srjit
