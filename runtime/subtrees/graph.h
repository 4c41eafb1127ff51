// The subtrees of one optimised graph: their identity across graphs, what computing them costs, and the graph that
// reads some of them instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/lowering/code_weights.h"
#include "passes/dag.h"

namespace srjit {

/// What a subtree computes: operators, variables and literal values, hashed to 128 bits, so that collisions are
/// negligible. Equal in all graphs and processes for equal operands in equal order. Subtrees with a caller's parameters
/// have none.
struct SubtreeKey {
  std::uint64_t high = 0, low = 0;

  bool isNone() const noexcept { return high == 0 && low == 0; }
  friend bool operator==(const SubtreeKey&, const SubtreeKey&) = default;
  struct Hash {
    std::size_t operator()(const SubtreeKey& key) const noexcept { return static_cast<std::size_t>(key.low); }
  };
};

/// Adjacent roots of a graph are in one kernel, which computes once what they share: one root for a program of the
/// interpreter. Linear in the nodes of all kernels. Not thread-safe; the graph and the weights must outlive it.
class GraphSubtrees {
 public:
  GraphSubtrees(const Dag& dag, const CodeWeights& weights, std::size_t roots_per_kernel);

  const SubtreeKey& key(NodeId id) const noexcept { return keys_[id]; }
  /// As a tree; at most UINT32_MAX.
  std::uint32_t tokens(NodeId id) const noexcept { return tokens_[id]; }
  /// Instructions per row of the subtree as a tree: instructionsOf() or more.
  double treeInstructions(NodeId id) const noexcept { return tree_instructions_[id]; }
  /// Instructions per row of all kernels.
  double instructions() const noexcept { return instructions_; }
  /// Kernels that compute, or read, the operator `id`.
  std::uint32_t kernels(NodeId id) const noexcept { return kernels_[id]; }
  /// Instructions per row that a kernel has for nothing but `id`; in a program of the interpreter all of its subtree,
  /// since other parts of the program rarely use a part of it. Linear in the subtree.
  double ownInstructions(NodeId id);
  /// Instructions per row of the subtree, each node once. Linear in the subtree.
  double instructionsOf(NodeId id);

  /// From the next count() on, kernels read `id`.
  void read(NodeId id) { read_[id] = true; }
  bool isRead(NodeId id) const noexcept { return read_[id]; }
  void count();

 private:
  bool computes(NodeId id) const noexcept { return dag_.node(id).kind == Token::Kind::kOp && !read_[id]; }
  double weight(NodeId id) const noexcept { return weights_[static_cast<std::size_t>(dag_.node(id).op)]; }
  void findKeys();
  template <class Enters>
  double sumFrom(NodeId id, const Enters& enters);

  const Dag& dag_;
  const CodeWeights& weights_;
  std::size_t roots_per_kernel_;
  std::vector<SubtreeKey> keys_;
  std::vector<std::uint32_t> tokens_, kernels_;
  std::vector<double> tree_instructions_;
  std::vector<bool> read_;
  double instructions_ = 0;
  std::vector<std::uint32_t> uses_;
  std::vector<std::uint32_t> seen_;  ///< the last walk that reached the node
  std::uint32_t walk_ = 0;
  std::vector<NodeId> stack_, touched_;
};

/// The graph where nodes are variables instead: columns[id] is the column that has the values of node id, or kComputed.
/// Dead nodes are removed. Operators get the same operands; those of commutative ones may be exchanged.
inline constexpr std::uint32_t kComputed = ~0U;
Dag withColumns(Dag dag, std::span<const std::uint32_t> columns);

}  // namespace srjit
