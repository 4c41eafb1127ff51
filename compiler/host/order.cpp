#include "compiler/host/order.h"

#include <algorithm>

namespace srjit {
namespace {

/// The operators of every root that no root before it has, ascending.
std::vector<std::vector<NodeId>> ownOperators(const Dag& dag) {
  std::vector<std::vector<NodeId>> own(dag.roots().size());
  std::vector<bool> seen(dag.size());
  std::vector<NodeId> pending;
  for (std::size_t root = 0; root < own.size(); ++root) {
    pending.push_back(dag.roots()[root]);
    while (!pending.empty()) {
      const NodeId id = pending.back();
      pending.pop_back();
      if (seen[id] || dag.node(id).kind != Token::Kind::kOp) continue;
      seen[id] = true;
      own[root].push_back(id);
      const auto inputs = dag.node(id).inputs();
      pending.insert(pending.end(), inputs.begin(), inputs.end());
    }
    std::sort(own[root].begin(), own[root].end());
  }
  return own;
}

}  // namespace

std::vector<NodeId> interleavedOrder(const Dag& dag, unsigned ways) {
  const std::vector<std::vector<NodeId>> own = ownOperators(dag);
  std::vector<bool> done(dag.size());
  const auto isReady = [&](NodeId id) {
    const auto inputs = dag.node(id).inputs();
    return std::all_of(inputs.begin(), inputs.end(),
                       [&](NodeId input) { return dag.node(input).kind != Token::Kind::kOp || done[input]; });
  };
  struct Turn {
    std::size_t root, position;
  };
  std::vector<Turn> turns;
  std::vector<NodeId> order;
  std::size_t next_root = 0;
  while (true) {
    while (turns.size() < ways && next_root < own.size()) turns.push_back({next_root++, 0});
    if (turns.empty()) return order;
    // A root waits only for operators of roots before it, so the first root in the list always makes progress.
    for (Turn& turn : turns) {
      if (turn.position == own[turn.root].size()) continue;
      const NodeId id = own[turn.root][turn.position];
      if (!isReady(id)) continue;
      done[id] = true;
      order.push_back(id);
      ++turn.position;
    }
    std::erase_if(turns, [&](const Turn& turn) { return turn.position == own[turn.root].size(); });
  }
}

}  // namespace srjit
