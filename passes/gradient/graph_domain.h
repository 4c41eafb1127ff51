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

/// A node, or a number that has none yet.
class Value {
 public:
  Value(double literal) : literal_(literal) {}
  Value(NodeId id, const NodeMaker& maker) : maker_(&maker), id_(id) {}

  const NodeMaker* maker() const noexcept { return maker_; }
  bool isLiteral() const noexcept { return maker_ == nullptr; }
  double literal() const noexcept { return literal_; }
  NodeId in(const NodeMaker& maker) const { return isLiteral() ? maker.constant(literal_) : id_; }

 private:
  const NodeMaker* maker_ = nullptr;
  NodeId id_ = 0;
  double literal_ = 0;
};

/// True where the node is positive, as the operator `if` has it.
struct Mask {
  NodeId positive;
  const NodeMaker* maker;
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
