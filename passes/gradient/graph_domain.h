// The rows of ops.def as nodes of a graph: the domain (ir/rows.h) in which derivatives and losses become graphs.
#pragma once

#include <cstdint>

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
