// Derivatives as nodes of the same graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "passes/dag.h"
#include "passes/gradient/graph_domain.h"

namespace srjit {

/// The derivative of the root by a node, while it is made: `value` in its rows, and 0 in the others, where the node is
/// in a branch that is not taken. There `value` may be NaN, so nothing is multiplied by that 0, neither here nor below.
struct Adjoint {
  NodeId value;
  graph::Rows rows = {};
};

/// Reverse accumulation (S. Linnainmaa, BIT 16(2), 1976; A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed.,
/// 2008, 3.2) over the cells dx, dy and dz of ops.def: one sweep from the root down adds the derivatives by all wanted
/// nodes, in a number of nodes that is linear in those of the root, however many are wanted. Keeps its working memory
/// between calls. Not thread-safe.
class Differentiator {
 public:
  static constexpr std::uint32_t kNotWanted = ~0U;

  /// `members` are the nodes that `root` needs, each after its operands. `wanted(id)` of a member is kNotWanted, or the
  /// index in `derivatives` of the derivative by it; the sweep ends there. A derivative by nodes that `root` does not
  /// depend on is the constant 0. Where `root` is finite, a product of the chain rule that is not, as 0 times infinity
  /// in tanh(1 / x), counts as 0; but not if it overflows. Where an operator's derivative is 0 everywhere but at jumps,
  /// as that of floor, nothing flows through it, not even NaN; neither does anything in rows in which its cell is the 0
  /// of a select, as that of a branch that is not taken.
  template <class Wanted>
  void run(NodeId root, std::span<const NodeId> members, const graph::NodeMaker& maker, const Wanted& wanted,
           std::span<NodeId> derivatives) {
    begin(members, maker, derivatives);
    for (const NodeId id : members) wanted_[id] = wanted(id);
    sweep(root, members, maker, derivatives);
  }

 private:
  static constexpr NodeId kNone = ~NodeId{0};
  /// Facts about a node where the root is finite (passes/operator_facts.h).
  enum Fact : std::uint8_t {
    kDepends = 1,      ///< it depends on a wanted node
    kExceptional = 2,  ///< it may be infinite or NaN if something above hides it
    kHidden = 4,       ///< an operator above hides it, or an operand below it
    kFailed = 8,       ///< so its adjoint may be infinite or NaN
  };

  void begin(std::span<const NodeId> members, const graph::NodeMaker& maker, std::span<NodeId> derivatives);
  void collectFacts(std::span<const NodeId> members, const graph::NodeMaker& maker);
  void sweep(NodeId root, std::span<const NodeId> members, const graph::NodeMaker& maker,
             std::span<NodeId> derivatives);
  void pass(NodeId id, const graph::Value& root, const graph::NodeMaker& maker);
  bool has(NodeId id, Fact fact) const { return (facts_[id] & fact) != 0; }
  void add(NodeId id, const Adjoint& contribution, const graph::NodeMaker& maker);

  // By node; stale but for members of the current call:
  std::vector<std::uint32_t> wanted_;
  std::vector<std::uint8_t> facts_;  ///< sets of Fact
  std::vector<Adjoint> adjoints_;    ///< the derivative of the root by it, as far as its users are done
};

}  // namespace srjit
