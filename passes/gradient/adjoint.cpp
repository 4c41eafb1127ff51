#include "passes/gradient/adjoint.h"

namespace srjit {
namespace {

using graph::Rows;

/// The rows that are in x and in y. A comparison with NaN is false, and so is `if`.
Rows both(const Rows& x, const Rows& y, const graph::NodeMaker& maker) {
  if (x.areAll() || x == y) return y;
  if (y.areAll()) return x;
  if (x.negated && y.negated) {
    return {maker.apply(Op::kIf, {x.positive, maker.constant(1), y.positive}), true};
  }
  const Rows& first = x.negated ? y : x;
  const Rows& second = x.negated ? x : y;
  return {choose(second, first.positive, maker.constant(0), maker), false};
}

Rows either(const Rows& x, const Rows& y, const graph::NodeMaker& maker) {
  return x.areAll() || y.areAll() ? Rows{} : both(x.others(), y.others(), maker).others();
}

// Without rules, too, a graph has no factors 1 and -1, which most cells are.
NodeId product(NodeId adjoint, const graph::Value& partial, const graph::NodeMaker& maker) {
  if (partial.isLiteral() && partial.literal() == 1) return adjoint;
  if (partial.isLiteral() && partial.literal() == -1) return maker.apply(Op::kNeg, {adjoint, 0, 0});
  const Node& node = maker.dag().node(adjoint);
  const bool is_one = node.kind == Token::Kind::kConstant && node.value == 1;
  return is_one ? partial.in(maker) : maker.apply(Op::kMul, {adjoint, partial.in(maker), 0});
}

}  // namespace

NodeId Adjoint::in(const graph::NodeMaker& maker) const { return choose(rows, value, maker.constant(0), maker); }

Adjoint times(const Adjoint& of_node, const graph::Value& partial, const graph::NodeMaker& maker) {
  return {product(of_node.value, partial.inRows(), maker), both(of_node.rows, partial.rows(), maker)};
}

Adjoint sum(const Adjoint& x, const Adjoint& y, const graph::NodeMaker& maker) {
  const auto add = [&](NodeId a, NodeId b) { return maker.apply(Op::kAdd, {a, b, 0}); };
  if (x.rows == y.rows) return {add(x.value, y.value), x.rows};
  // One of two branches.
  if (x.rows == y.rows.others()) return {choose(x.rows, x.value, y.value, maker)};
  const Rows rows = either(x.rows, y.rows, maker);
  return {add(x.in(maker), y.in(maker)), rows};
}

}  // namespace srjit
