// A graph that passes rewrite in place, one after the other, and the frame of passes from the leaves to the roots.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "passes/dag.h"

namespace srjit {

/// A graph and the list of those of its nodes that count. A pass only adds nodes, so that what it does not change costs
/// it no more than a look, and what it replaces stays behind, unlisted. A pass makes a new list: begin(), keep() for
/// each node, commit(). Not thread-safe.
class WorkingDag {
 public:
  static constexpr NodeId kNone = ~NodeId{0};

  /// Lists the nodes that a root reaches, by ascending id.
  explicit WorkingDag(Dag dag);

  /// The graph, with nodes that do not count. New nodes and roots are entered here.
  Dag& dag() noexcept { return dag_; }
  const Dag& dag() const noexcept { return dag_; }
  /// The nodes that count, each after its operands: they are numbered so by result().
  std::span<const NodeId> order() const noexcept { return order_; }

  /// Up to which rules `id` is known to be in normal form, as simplify() numbers them; 0 at first. Nodes never change
  /// but for constants that become parameters, which match no more rules: what one pass finds out stays true after it.
  std::uint8_t normality(NodeId id) const noexcept { return id < normality_.size() ? normality_[id] : 0; }
  void setNormality(NodeId id, std::uint8_t normality) {
    if (id >= normality_.size()) normality_.resize(dag_.size());
    normality_[id] = normality;
  }

  /// Starts a new list, which is empty.
  void begin();
  /// Lists `id` next if it is not listed yet, and gives it back. Its operands must be listed already.
  NodeId keep(NodeId id) {
    if (id >= marks_.size()) marks_.resize(dag_.size());
    if (marks_[id] == 0) {
      marks_[id] = kListed;
      next_.push_back(id);
    }
    return id;
  }
  bool isKept(NodeId id) const noexcept { return id < marks_.size() && marks_[id] != 0; }
  /// The new list, without the nodes that no root reaches, replaces the old one. Linear, not recursive.
  void commit();

  /// One pass over the listed nodes, operands first. `leaf(id)` gives what stands for a leaf,
  /// `operation(op, operands, id)` what stands for an operator over what stands for its operands; there, `id` is the
  /// node if these are its operands, else kNone. Both must keep() what they give.
  template <class Leaf, class Operation>
  void rebuild(const Leaf& leaf, const Operation& operation);

  /// A graph of the listed nodes alone, numbered as they are listed.
  Dag result() const { return dag_.renumbered(order_); }

 private:
  static constexpr std::uint8_t kListed = 1, kReached = 2;

  Dag dag_;
  std::vector<NodeId> order_;
  std::vector<NodeId> next_;             ///< the list being made
  std::vector<std::uint8_t> marks_;      ///< of every node: whether next_ has it
  std::vector<std::uint8_t> normality_;  ///< of the nodes that were looked at
  std::vector<NodeId> image_;            ///< rebuild(): what stands for every node
};

template <class Leaf, class Operation>
void WorkingDag::rebuild(const Leaf& leaf, const Operation& operation) {
  begin();
  image_.resize(dag_.size());
  bool changed = false;
  for (const NodeId id : order_) {
    const Node& node = dag_.node(id);
    NodeId to = id;
    if (node.kind != Token::Kind::kOp) {
      to = leaf(id);
    } else {
      const auto arity = static_cast<std::size_t>(arityOf(node.op));
      std::array<NodeId, kMaxArity> operands = node.operands;
      NodeId differences = 0;
      for (std::size_t k = 0; k < arity; ++k) {
        operands[k] = image_[node.operands[k]];
        differences |= operands[k] ^ node.operands[k];
      }
      const NodeId same = differences == 0 ? id : kNone;
      to = operation(node.op, std::span<const NodeId>(operands.data(), arity), same);
    }
    image_[id] = to;
    changed |= to != id;
  }
  if (!changed) return;
  for (std::size_t i = 0; i < dag_.roots().size(); ++i) dag_.setRoot(i, image_[dag_.roots()[i]]);
  commit();
}

}  // namespace srjit
