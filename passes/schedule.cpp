#include "passes/schedule.h"

#include <algorithm>
#include <utility>

#include "passes/pass.h"
#include "passes/working_dag.h"

namespace srjit {
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
