// A graph that passes rewrite in place, one after the other, and the bottom-up walk that passes share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "passes/dag.h"
#include "passes/rewrite_log.h"

namespace srjit {

/// A graph and the list of its live nodes, those that a root reaches. A pass only adds nodes. A node that it replaces
/// stays in the graph as a dead node, which is not listed. A pass makes a new list: begin(), keep() for each node,
/// commit(). Not thread-safe.
class WorkingDag {
 public:
  /// Lists the nodes that a root reaches, by ascending id.
  explicit WorkingDag(Dag dag);

  /// The graph, with its dead nodes. Passes add nodes and set roots here.
  Dag& dag() noexcept { return dag_; }
  const Dag& dag() const noexcept { return dag_; }
  /// The live nodes, each after its operands. result() numbers them in this order.
  std::span<const NodeId> order() const noexcept { return order_; }

  /// Starts a new list, which is empty.
  void begin();
  /// Appends `id` to the new list if it is not listed yet, and returns it. Its operands must be listed already.
  NodeId keep(NodeId id) {
    if (id >= marks_.size()) marks_.resize(dag_.size());
    if (marks_[id] == 0) {
      marks_[id] = kListed;
      next_.push_back(id);
    }
    return id;
  }
  /// The same with all that it needs, operands first.
  NodeId keepTree(NodeId id);
  bool isKept(NodeId id) const noexcept { return id < marks_.size() && marks_[id] != 0; }
  /// Replaces the old list by the new one without its dead nodes. Linear, not recursive.
  void commit();

  /// Visits the listed nodes, operands first, and replaces each: `leaf(id)` returns the replacement of a leaf, and
  /// `operation(op, operands)` that of an operator, given the replacements of its operands. `log`, if given, gets what
  /// was replaced.
  template <class Leaf, class Operation>
  void rebuild(const Leaf& leaf, const Operation& operation, RewriteLog* log = nullptr);
  /// The same where leaves stay.
  template <class Operation>
  void rebuild(const Operation& operation, RewriteLog* log = nullptr) {
    rebuild([](NodeId id) { return id; }, operation, log);
  }

  /// A graph of only the listed nodes, numbered as they are listed.
  Dag result() const { return dag_.renumbered(order_); }

 private:
  static constexpr std::uint8_t kListed = 1, kReached = 2;

  Dag dag_;
  std::vector<NodeId> order_;
  std::vector<NodeId> next_;         ///< the list being made
  std::vector<std::uint8_t> marks_;  ///< of every node: whether next_ has it
  std::vector<NodeId> path_;         ///< keepTree(): nodes whose operands are being listed
  std::vector<NodeId> image_;        ///< rebuild(): the replacement of every node
};

template <class Leaf, class Operation>
void WorkingDag::rebuild(const Leaf& leaf, const Operation& operation, RewriteLog* log) {
  begin();
  image_.resize(dag_.size());
  for (const NodeId id : order_) {
    const Node node = dag_.node(id);
    if (node.kind == Token::Kind::kOp) {
      Operands operands{};
      for (std::size_t k = 0; k < node.inputs().size(); ++k) operands[k] = image_[node.operands[k]];
      image_[id] = keepTree(operation(node.op, operands));
    } else {
      image_[id] = keepTree(leaf(id));
    }
    if (log != nullptr) log->replace(id, image_[id]);
  }
  for (std::size_t i = 0; i < dag_.roots().size(); ++i) dag_.setRoot(i, image_[dag_.roots()[i]]);
  commit();
}

}  // namespace srjit
