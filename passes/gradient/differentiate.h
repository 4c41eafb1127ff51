// Derivatives as nodes of the same graph; and the rows of ops.def as nodes, the domain (ir/rows.h) in which derivatives
// and losses become graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/ops.h"
#include "passes/dag.h"
#include "passes/rules/rewriter.h"

namespace srjit::graph {

/// Adds nodes to a graph: in normal form (passes/rules/rewriter.h), or as they are. Borrows both. Not thread-safe.
class NodeMaker {
 public:
  /// `rules` adds to `dag`; null: no rule is applied.
  NodeMaker(Dag& dag, Rewriter* rules) : dag_(dag), rules_(rules) {}

  Dag& dag() const noexcept { return dag_; }
  NodeId constant(double value) const { return dag_.constant(value); }
  NodeId apply(Op op, const Operands& operands) const {
    return rules_ != nullptr ? rules_->build(op, operands) : dag_.apply(op, operands);
  }

 private:
  Dag& dag_;
  Rewriter* rules_;
};

/// The rows in which a node is positive, as the operator `if` has it; or, negated, the others, those with NaN included.
/// All rows where there is no node.
struct Rows {
  static constexpr NodeId kNoNode = ~NodeId{0};
  NodeId positive = kNoNode;
  bool negated = false;

  bool areAll() const noexcept { return positive == kNoNode; }
  /// The other rows of some.
  Rows others() const noexcept { return {positive, !negated}; }
  friend bool operator==(const Rows&, const Rows&) = default;
};

/// x in these rows, y in the others.
NodeId choose(const Rows& rows, NodeId x, NodeId y, const NodeMaker& maker);

/// A truth value.
struct Mask {
  Rows rows;
  const NodeMaker* maker;
};

/// A node, or a number that has none yet; in some rows, and 0 in the others, or in all.
class Value {
 public:
  Value(double literal) : literal_(literal) {}
  Value(NodeId id, const NodeMaker& maker) : maker_(&maker), id_(id) {}

  const NodeMaker* maker() const noexcept { return maker_; }
  bool isLiteral() const noexcept { return maker_ == nullptr; }
  double literal() const noexcept { return literal_; }
  NodeId in(const NodeMaker& maker) const;

  /// The rows, and the value there.
  const Rows& rows() const noexcept { return rows_; }
  Value inRows() const { return id_ == Rows::kNoNode ? Value(literal_) : Value(id_, *maker_); }
  /// This value, which is of all rows, in the mask's; 0 in the others.
  Value onlyIn(const Mask& mask) const;

 private:
  const NodeMaker* maker_ = nullptr;  ///< null: a number in all rows
  NodeId id_ = Rows::kNoNode;         ///< none: a number
  Rows rows_;
  double literal_ = 0;
};

// Of two literals an operation is computed in double. A comparison has a node among its operands.
Value operator+(const Value& x, const Value& y);
Value operator-(const Value& x, const Value& y);
Value operator*(const Value& x, const Value& y);
Value operator/(const Value& x, const Value& y);
Value operator-(const Value& x);
Mask lt(const Value& x, const Value& y);
Mask le(const Value& x, const Value& y);
Mask eq(const Value& x, const Value& y);
Value select(const Mask& mask, const Value& x, const Value& y);
Mask isFinite(const Value& x);
/// A derivative of `whole`: where it is not finite, 0 if `whole` is finite, and NaN otherwise.
Value finiteWith(const Value& derivative, const Value& whole);
#define SRJIT_FUNCTION(id, arity, ...) SRJIT_DECLARE_##arity(id)
#define SRJIT_DECLARE_1(id) Value id(const Value& x);
#define SRJIT_DECLARE_2(id) Value id(const Value& x, const Value& y);
#define SRJIT_DECLARE_3(id) Value id(const Value& x, const Value& y, const Value& z);
#include "ir/functions.def"
#undef SRJIT_FUNCTION
#undef SRJIT_DECLARE_1
#undef SRJIT_DECLARE_2
#undef SRJIT_DECLARE_3

}  // namespace srjit::graph

namespace srjit {

/// Reverse accumulation (S. Linnainmaa, BIT 16(2), 1976; A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed.,
/// 2008, 3.2) over the cells dx, dy and dz of ops.def: one sweep from the root down adds the derivatives by all wanted
/// nodes, in a number of nodes that is linear in those of the root, however many are wanted. Keeps its working memory
/// between calls. Not thread-safe.
class Differentiator {
 public:
  static constexpr std::uint32_t kNotWanted = ~0U;

  Differentiator();
  ~Differentiator();

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

  struct Adjoint;

 private:
  static constexpr NodeId kNone = ~NodeId{0};
  /// Facts about a node where the root is finite (passes/operator_facts.h): it depends on a wanted node; it may be
  /// infinite or NaN if something above hides it; an operator above hides it, or an operand below it; so its adjoint
  /// may be infinite or NaN.
  static constexpr std::uint8_t kDepends = 1, kExceptional = 2, kHidden = 4, kFailed = 8;

  void begin(std::span<const NodeId> members, const graph::NodeMaker& maker, std::span<NodeId> derivatives);
  void collectFacts(std::span<const NodeId> members, const graph::NodeMaker& maker);
  void sweep(NodeId root, std::span<const NodeId> members, const graph::NodeMaker& maker,
             std::span<NodeId> derivatives);
  void pass(NodeId id, const graph::Value& root, const graph::NodeMaker& maker);
  bool has(NodeId id, std::uint8_t fact) const { return (facts_[id] & fact) != 0; }
  void add(NodeId id, const Adjoint& contribution, const graph::NodeMaker& maker);

  // By node; stale but for members of the current call:
  std::vector<std::uint32_t> wanted_;
  std::vector<std::uint8_t> facts_;  ///< sets of kDepends and so on
  std::vector<Adjoint> adjoints_;    ///< the derivative of the root by it, as far as its users are done
};

}  // namespace srjit
