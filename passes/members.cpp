#include "passes/members.h"

#include <algorithm>
#include <utility>

#include "passes/pass.h"
#include "passes/working_dag.h"

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

namespace {

/// The operands of a node by decreasing need; those of equal need in the node's order.
Operands operandsByNeed(const Dag& dag, const Node& node) {
  Operands sorted = node.operands;
  const auto sort = [&](std::size_t i, std::size_t k) {
    if (dag.node(sorted[i]).need < dag.node(sorted[k]).need) std::swap(sorted[i], sorted[k]);
  };
  if (node.operand_count < 2) return sorted;
  sort(0, 1);
  if (node.operand_count < 3) return sorted;
  sort(1, 2);
  sort(0, 1);
  return sorted;
}

}  // namespace

std::span<const NodeId> Scheduler::run(const Dag& dag, std::span<const NodeId> roots, std::size_t count) {
  constexpr NodeId kOperandsListed = NodeId{1} << 31;
  listed_.assign(dag.size(), 0);
  order_.resize(count);
  NodeId* end = order_.data();
  std::uint8_t* const listed = listed_.data();
  const auto list = [&](NodeId id) {
    if (listed[id] == 0) *end++ = id;
    listed[id] = 1;
  };
  // A node is expanded once, and leaves itself and its operands pending; before, the root is.
  pending_.resize(std::max(pending_.size(), (kMaxArity + std::size_t{1}) * (count + 1)));
  NodeId* const bottom = pending_.data();
  for (const NodeId root : roots) {
    NodeId* next = bottom;
    *next++ = root;
    while (next != bottom) {
      const NodeId top = *--next;
      const NodeId id = top & ~kOperandsListed;
      const Node& node = dag.node(id);
      if ((top & kOperandsListed) != 0) {
        for (const NodeId operand : node.inputs()) list(operand);
        list(id);
        continue;
      }
      // Operands may have been listed since they became pending.
      if (listed[id] != 0) continue;
      *next++ = id | kOperandsListed;
      const Operands sorted = operandsByNeed(dag, node);
      for (std::size_t i = node.operand_count; i-- > 0;) {
        if (dag.node(sorted[i]).need > 0 && listed[sorted[i]] == 0) *next++ = sorted[i];
      }
    }
  }
  return order_;
}

void schedule(WorkingDag& work, const PassContext&) {
  Scheduler scheduler;
  work.begin();
  for (const NodeId id : scheduler.run(work.dag(), work.dag().roots(), work.order().size())) work.keep(id);
  work.commit();
}

}  // namespace srjit
