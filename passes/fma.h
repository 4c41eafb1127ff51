// Fusion of sums and products into multiply-adds, for one expression at a time: which product a sum takes depends on
// the number of its uses, and uses in other expressions of a batch must not count.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <tuple>
#include <vector>

#include "ir/ops.h"
#include "passes/dag.h"
#include "passes/rewrite_log.h"

namespace srjit {

// Without branches, which would be hard to predict.
/// Whether an operator is a sum or difference.
constexpr bool isSum(Op op) noexcept { return ((op == Op::kAdd) | (op == Op::kSub)) != 0; }
/// Whether an operator's product with its operand, or with its second operand, is 1, or the first, but for rounding.
constexpr bool isReciprocal(Op op) noexcept { return op == Op::kInv || op == Op::kPinv || op == Op::kLooseInv; }
constexpr bool isQuotient(Op op) noexcept { return op == Op::kDiv || op == Op::kPdiv || op == Op::kLooseDiv; }
/// Whether a node is a product that a sum can take.
inline bool isFusible(const Node& node) noexcept {
  return (node.isOperator() & ((node.op == Op::kMul) | (node.op == Op::kSquare) | (node.op == Op::kCube))) != 0;
}

/// Adds fused nodes to a graph. Not thread-safe; the graph must outlive it.
class Fuser {
 public:
  /// Sums that are fused are added to `log`, if that is given.
  explicit Fuser(Dag& dag, RewriteLog* log = nullptr) : dag_(dag), log_(log) {}

  /// Finds which nodes from `first` on have a sum of a product among the nodes from there on that they need, for
  /// hasSums(). The cost depends on the nodes from `first` on.
  void findSumsFrom(NodeId first);
  /// Whether fuse() may change this node, which findSumsFrom() saw, or one that it needs; not of nodes that were added
  /// since.
  bool hasSums(NodeId id) const { return has_sums_[id] != 0; }

  /// The fused form of `root`, or `root` itself. `members` are the nodes from `first` on that it needs, each after its
  /// operands; nodes before stay as they are. `uses`, by node, has how often each is used by members and as the root.
  /// Linear, not recursive.
  NodeId fuse(NodeId root, std::span<const NodeId> members, std::span<const std::uint32_t> uses, NodeId first = 0);

 private:
  static constexpr NodeId kNone = ~NodeId{0};

  /// Finds the nodes that are, or need, a sum of a product; the others stay as they are. False if there are none.
  bool findSums(std::span<const NodeId> members);
  unsigned isSumOfProduct(const Node& node) const;
  void keepOperandsBefore(NodeId first, std::span<const NodeId> members);
  NodeId imageOf(NodeId id);
  NodeId fusedSum(const Node& sum);
  void report(const Node& sum, NodeId fused);
  bool isOneOf(NodeId id, std::initializer_list<Op> ops) const;
  bool undoesAFactor(NodeId id) const;
  bool isReciprocalOf(NodeId id, NodeId other) const;
  bool isProduct(NodeId id) const;
  std::array<NodeId, 2> factorsOf(NodeId id);
  /// Factors without a sign, and whether they had one.
  std::tuple<NodeId, NodeId, bool> withoutSign(std::array<NodeId, 2> factors) const;

  Dag& dag_;
  RewriteLog* log_;                      ///< null: none
  std::span<const std::uint32_t> uses_;  ///< of the current call
  // By node; stale but for members of the current call:
  std::vector<std::uint8_t> has_sums_;
  std::vector<NodeId> image_;
};

}  // namespace srjit
