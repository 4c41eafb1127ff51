// The subtrees of one optimised graph: their identity across graphs, what computing them costs against reading their
// values from device memory, and the graph that reads some of them instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/lowering/code_weights.h"
#include "passes/dag.h"
#include "runtime/code/costs.h"
#include "runtime/engine_options.h"

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

/// What one generation does with a subtree; seconds and values of one row.
struct SubtreeUse {
  double computing = 0;  ///< seconds that it takes to compute it wherever it is used
  double reads = 0;      ///< values that are loaded where it is read instead
  double making = 0;     ///< seconds that computing it once, by the interpreter, takes
};

/// Seconds that loading four bytes takes when all multiprocessors do nothing else: 1.2e12 per second come from an
/// H200's memory, 1.4e12 from its L2 cache (docs/history/measurements.md). A kernel that computes beside it hides a
/// part, so this keeps too little rather than too much.
inline constexpr double kReadSeconds = 1 / 1.2e12;

/// Programs that a block of the interpreter runs on the columns that it has staged (chooseGeometry), if there are many:
/// this number reads a column's value for one load of it.
inline constexpr double kProgramsPerRead = 64;

/// Seconds per row that keeping the values saves over `generations` of this use; they are computed and stored
/// once. Not to be kept unless it is above 0. `value_seconds` is what one value takes to load or store.
constexpr double keepingSaves(const SubtreeUse& use, double value_seconds, double generations) {
  return generations * (use.computing - use.reads * value_seconds) - (use.making + value_seconds);
}

/// Values that are loaded for a subtree that `kernels` use: once for each of them, or, by the interpreter, whose blocks
/// stage columns, for all of `programs` together.
constexpr double subtreeReads(Tier tier, double kernels, double programs) {
  return tier == Tier::kInterpret ? programs / kProgramsPerRead : kernels;
}

/// The cost per token and row of a tier.
constexpr double costOf(const DeviceCosts& costs, Tier tier) {
  return tier == Tier::kDirect ? costs.direct : tier == Tier::kCompile ? costs.compiled : costs.interpret;
}

/// Seconds of one core per node of a graph that is rewritten so as to read something: 35e-9 to 40e-9 on a 2-core
/// virtual machine, 2026-11-22.
inline constexpr double kRewriteSeconds = 40e-9;

/// The least part of an evaluation's device time that reading must save: less is within the error of this model.
inline constexpr double kLeastPart = 0.05;

/// Whether to rewrite graphs of `nodes` nodes, whose evaluation takes `seconds`, if that `saves` seconds.
constexpr bool rewritingPays(double saves, double seconds, double nodes, double threads) {
  return saves > kLeastPart * seconds && saves > kRewriteSeconds * nodes / threads;
}

/// Savings below this much device time per evaluation are less than the bookkeeping and one more launch cost.
inline constexpr double kLeastSubtreeSeconds = 100e-6;

}  // namespace srjit
