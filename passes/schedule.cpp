#include "passes/schedule.h"

#include <algorithm>
#include <array>
#include <ranges>

#include "passes/pass.h"
#include "passes/working_dag.h"

namespace srjit {
namespace {

/// The distinct operands of a node that are operators, by decreasing need; those of equal need in the node's order.
struct Order {
  std::array<NodeId, kMaxArity> operands{};
  std::size_t count = 0;

  Order(const Dag& dag, const Node& node, const std::vector<std::uint32_t>& needs) {
    for (const NodeId operand : node.inputs()) {
      const auto end = operands.begin() + static_cast<std::ptrdiff_t>(count);
      const bool leaf = dag.node(operand).kind != Token::Kind::kOp;
      if (!leaf && std::find(operands.begin(), end, operand) == end) operands[count++] = operand;
    }
    for (std::size_t i = 1; i < count; ++i) {
      for (std::size_t k = i; k > 0 && needs[operands[k - 1]] < needs[operands[k]]; --k) {
        std::swap(operands[k - 1], operands[k]);
      }
    }
  }
};

/// registerNeeds() of the nodes `ids`, each of which comes after its operands.
template <class Ids>
std::vector<std::uint32_t> needsOf(const Dag& dag, const Ids& ids) {
  std::vector<std::uint32_t> needs(dag.size());
  for (const NodeId id : ids) {
    const Node& node = dag.node(id);
    if (node.kind != Token::Kind::kOp) continue;
    const Order order(dag, node, needs);
    std::uint32_t need = 1;
    for (std::uint32_t held = 0; held < order.count; ++held) need = std::max(need, held + needs[order.operands[held]]);
    needs[id] = need;
  }
  return needs;
}

}  // namespace

std::vector<std::uint32_t> registerNeeds(const Dag& dag) {
  return needsOf(dag, std::views::iota(NodeId{0}, static_cast<NodeId>(dag.size())));
}

void schedule(WorkingDag& work, const PassContext&) {
  struct Visit {
    NodeId id;
    Order order;
    std::size_t next;
  };
  const Dag& dag = work.dag();
  const std::vector<std::uint32_t> needs = needsOf(dag, work.order());
  std::vector<Visit> path;
  const auto visit = [&](NodeId id) { path.push_back({id, Order(dag, dag.node(id), needs), 0}); };
  work.begin();
  for (const NodeId root : dag.roots()) {
    if (!work.isKept(root)) visit(root);
    while (!path.empty()) {
      Visit& top = path.back();
      while (top.next < top.order.count && work.isKept(top.order.operands[top.next])) ++top.next;
      if (top.next < top.order.count) {
        visit(top.order.operands[top.next++]);
        continue;
      }
      for (const NodeId operand : dag.node(top.id).inputs()) work.keep(operand);
      work.keep(top.id);
      path.pop_back();
    }
  }
  work.commit();
}

}  // namespace srjit
