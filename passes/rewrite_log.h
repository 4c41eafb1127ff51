// For `sr-jit explain`: the nodes that passes replaced in a graph, and the rules; and the numbers of operators that
// stay from one graph to the next (printDag()). Engines keep neither.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "passes/dag.h"

namespace srjit {

/// The rules that fired, and the nodes that were replaced, in order. Nodes are those of the graph that a pass works on
/// (WorkingDag::dag()), dead ones included. The passes `simplify` and `fma` report to it. Not thread-safe.
class RewriteLog {
 public:
  /// One application of a rule.
  struct Firing {
    std::string_view pattern, replacement;  ///< over x0, x1, x2, p0 and p1, as simplify.def writes rules
    std::string_view keeps;                 ///< "exact", "precise" or "fast": by the rule's mode (simplify.def)
    Op op;                                  ///< the term that was replaced: it need not be a node of the graph
    Operands operands;
    NodeId result;        ///< the node that stands for it
    std::uint32_t depth;  ///< of rules that fired for terms within the replacement of this one: one more
  };

  /// A rule matches; what fires until the end() of this call is within its replacement. `result` is set there.
  void begin(const Firing& firing) {
    open_.push_back(firings_.size());
    firings_.push_back(firing);
    firings_.back().depth = static_cast<std::uint32_t>(open_.size() - 1);
  }
  void end(NodeId result) {
    firings_[open_.back()].result = result;
    open_.pop_back();
  }
  /// An operator over constants is computed; `exact`: with the bits that a kernel would give.
  void fold(Op op, const Operands& operands, NodeId value, bool exact) {
    begin({"an operator over constants", "its value", exact ? "exact" : "precise", op, operands, value, 0});
    end(value);
  }
  /// A node of the graph is replaced, by a rule or since an operand was.
  void replace(NodeId before, NodeId after) {
    if (before != after) replaced_.emplace_back(before, after);
  }
  void clear() {
    firings_.clear();
    replaced_.clear();
  }

  const std::vector<Firing>& firings() const noexcept { return firings_; }
  const std::vector<std::pair<NodeId, NodeId>>& replaced() const noexcept { return replaced_; }

 private:
  std::vector<Firing> firings_;
  std::vector<std::pair<NodeId, NodeId>> replaced_;
  std::vector<std::size_t> open_;  ///< firings that have begun and not ended
};

/// Gives every operator of the graphs passed to it a number, from 0 in the order in which they are seen. An
/// operator over the same operands has the same number in all graphs; a literal counts as the same before and after it
/// was hoisted. So an operator whose whole subtree a pass leaves unchanged keeps its number, and what a pass makes has
/// one that no other had. Not thread-safe.
class NodeNumbers {
 public:
  /// The numbers of the nodes of `dag`, by id; those of leaves are 0 and mean nothing.
  std::vector<std::size_t> of(const Dag& dag);

 private:
  /// An operator, and for each operand what kind it is of and which.
  using Identity = std::array<std::uint64_t, 1 + 2 * kMaxArity>;

  std::map<Identity, std::size_t> numbers_;
  std::size_t next_ = 0;
};

}  // namespace srjit
