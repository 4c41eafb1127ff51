#include "passes/schedule.h"

#include <algorithm>
#include <array>

#include "passes/pass.h"

namespace srjit {
namespace {

/// The distinct operator operands of a node, the one with the largest need first, equal ones as they stand.
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

}  // namespace

std::vector<std::uint32_t> registerNeeds(const Dag& dag) {
  std::vector<std::uint32_t> needs(dag.size());
  for (NodeId id = 0; id < dag.size(); ++id) {
    const Node& node = dag.node(id);
    if (node.kind != Token::Kind::kOp) continue;
    const Order order(dag, node, needs);
    std::uint32_t need = 1;
    for (std::uint32_t held = 0; held < order.count; ++held) need = std::max(need, held + needs[order.operands[held]]);
    needs[id] = need;
  }
  return needs;
}

Dag schedule(const Dag& dag, const PassContext&) {
  struct Visit {
    NodeId id;
    std::size_t next;
  };
  constexpr NodeId kNone = ~NodeId{0};
  const std::vector<std::uint32_t> needs = registerNeeds(dag);
  Dag to(dag.precision());
  std::vector<NodeId> image(dag.size(), kNone);
  std::vector<Visit> path;
  for (const NodeId root : dag.roots()) {
    if (image[root] == kNone) path.push_back({root, 0});
    while (!path.empty()) {
      const NodeId id = path.back().id;
      const Node& node = dag.node(id);
      if (node.kind != Token::Kind::kOp) {
        image[id] = to.copyLeaf(dag, id);
        path.pop_back();
        continue;
      }
      const Order order(dag, node, needs);
      while (path.back().next < order.count && image[order.operands[path.back().next]] != kNone) ++path.back().next;
      if (path.back().next < order.count) {
        path.push_back({order.operands[path.back().next++], 0});
        continue;
      }
      std::array<NodeId, kMaxArity> operands{};
      const std::span<const NodeId> inputs = node.inputs();
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        NodeId& operand = image[inputs[i]];
        if (operand == kNone) operand = to.copyLeaf(dag, inputs[i]);
        operands[i] = operand;
      }
      image[id] = to.apply(node.op, std::span<const NodeId>(operands.data(), inputs.size()));
      path.pop_back();
    }
    to.addRoot(image[root]);
  }
  return to;
}

}  // namespace srjit
