#include "passes/gradient/differentiate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <ranges>

#include "ir/rows.h"
#include "passes/operator_facts.h"

namespace srjit::graph {
namespace {

const NodeMaker& makerOf(const Value& x, const Value& y) { return x.isLiteral() ? *y.maker() : *x.maker(); }

Value operation(Op op, const Value& x) { return {x.maker()->apply(op, {x.in(*x.maker()), 0, 0}), *x.maker()}; }
Value operation(Op op, const Value& x, const Value& y) {
  if (x.isLiteral() && y.isLiteral()) return applyRow(op, x.literal(), y.literal(), 0.0);
  const NodeMaker& maker = makerOf(x, y);
  return {maker.apply(op, {x.in(maker), y.in(maker), 0}), maker};
}
Mask positive(const Value& value) { return {{value.in(*value.maker())}, value.maker()}; }

/// The operator that computes a function, and nothing else: that of its name, but for three. None copies a sign.
Op operatorOf(Function function) {
  static const auto operators = [] {
    constexpr std::size_t kFunctions = 0
#define SRJIT_FUNCTION(...) +1
#include "ir/functions.def"
#undef SRJIT_FUNCTION
        ;
    std::array<Op, kFunctions> made{};
    for (std::size_t i = 0; i < kFunctions; ++i) {
      switch (static_cast<Function>(i)) {
        case Function::k_minimum:
          made[i] = Op::kMin;
          break;
        case Function::k_maximum:
          made[i] = Op::kMax;
          break;
        case Function::k_rint:
          made[i] = Op::kRound;
          break;
        case Function::k_copysign:
          break;
        default:
          made[i] = findOp(allFunctions()[i].name).value();
      }
    }
    return made;
  }();
  return operators[static_cast<std::size_t>(function)];
}

Value call(Function function, const Value& x) { return operation(operatorOf(function), x); }

// No operator copies a sign. A zero's sign shows in its reciprocal, and an infinity's in itself.
Value copySign(const Value& x, const Value& y) {
  const Value magnitude = x.isLiteral() ? Value(std::fabs(x.literal())) : abs(x);
  const Value with_zeros = select(lt(1.0 / y, 0.0), -magnitude, magnitude);
  return select(lt(y, 0.0), -magnitude, with_zeros);
}

Value call(Function function, const Value& x, const Value& y) {
  return function == Function::k_copysign ? copySign(x, y) : operation(operatorOf(function), x, y);
}

Value call(Function function, const Value& x, const Value& y, const Value& z) {
  const NodeMaker& maker = x.isLiteral() ? makerOf(y, z) : *x.maker();
  return {maker.apply(operatorOf(function), {x.in(maker), y.in(maker), z.in(maker)}), maker};
}

}  // namespace

NodeId choose(const Rows& rows, NodeId x, NodeId y, const NodeMaker& maker) {
  return rows.areAll() ? x : maker.apply(Op::kIf, {rows.positive, rows.negated ? y : x, rows.negated ? x : y});
}

NodeId Value::in(const NodeMaker& maker) const {
  const NodeId value = id_ == Rows::kNoNode ? maker.constant(literal_) : id_;
  return rows_.areAll() ? value : choose(rows_, value, maker.constant(0), maker);
}

Value Value::onlyIn(const Mask& mask) const {
  Value result = *this;
  result.maker_ = mask.maker;
  result.rows_ = mask.rows;
  return result;
}

Value operator+(const Value& x, const Value& y) { return operation(Op::kAdd, x, y); }
Value operator-(const Value& x, const Value& y) { return operation(Op::kSub, x, y); }
Value operator*(const Value& x, const Value& y) { return operation(Op::kMul, x, y); }
Value operator/(const Value& x, const Value& y) { return operation(Op::kDiv, x, y); }
Value operator-(const Value& x) { return x.isLiteral() ? Value(-x.literal()) : operation(Op::kNeg, x); }

// `if` tests whether a node is positive, so a comparison with 0 needs no operator.
Mask lt(const Value& x, const Value& y) {
  return positive(x.isLiteral() && x.literal() == 0 ? y : operation(Op::kLt, x, y));
}
Mask le(const Value& x, const Value& y) { return positive(operation(Op::kLe, x, y)); }
Mask eq(const Value& x, const Value& y) { return positive(operation(Op::kLe, x, y) * operation(Op::kLe, y, x)); }

Value select(const Mask& mask, const Value& x, const Value& y) {
  const auto isZero = [](const Value& value) { return value.isLiteral() && value.literal() == 0; };
  if (isZero(y) && x.rows().areAll()) return x.onlyIn(mask);
  if (isZero(x) && y.rows().areAll()) return y.onlyIn({mask.rows.others(), mask.maker});
  const NodeMaker& maker = *mask.maker;
  return {choose(mask.rows, x.in(maker), y.in(maker), maker), maker};
}

Mask isFinite(const Value& x) { return lt(abs(x), std::numeric_limits<double>::infinity()); }
Value finiteWith(const Value& derivative, const Value& whole) {
  return select(isFinite(derivative), derivative, 0.0 * whole);
}

#define SRJIT_VALUE Value
#define SRJIT_CALL call
#include "ir/functions/define.def"

}  // namespace srjit::graph

namespace srjit {

/// The derivative of the root by a node, while it is made: `value` in its rows, and 0 in the others, where the node is
/// in a branch that is not taken. There `value` may be NaN, so nothing is multiplied by that 0, neither here nor below.
struct Differentiator::Adjoint {
  NodeId value;
  graph::Rows rows = {};
};

namespace {

using graph::Rows;
using Adjoint = Differentiator::Adjoint;

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

/// As one node.
NodeId nodeOf(const Adjoint& x, const graph::NodeMaker& maker) {
  return choose(x.rows, x.value, maker.constant(0), maker);
}

/// The adjoint that an operand gets from a node with adjoint `of_node` and this partial derivative, not the number 0.
Adjoint times(const Adjoint& of_node, const graph::Value& partial, const graph::NodeMaker& maker) {
  return {product(of_node.value, partial.inRows(), maker), both(of_node.rows, partial.rows(), maker)};
}

Adjoint sum(const Adjoint& x, const Adjoint& y, const graph::NodeMaker& maker) {
  const auto add = [&](NodeId a, NodeId b) { return maker.apply(Op::kAdd, {a, b, 0}); };
  if (x.rows == y.rows) return {add(x.value, y.value), x.rows};
  // One of two branches.
  if (x.rows == y.rows.others()) return {choose(x.rows, x.value, y.value, maker)};
  const Rows rows = either(x.rows, y.rows, maker);
  return {add(nodeOf(x, maker), nodeOf(y, maker)), rows};
}

}  // namespace

Differentiator::Differentiator() = default;
Differentiator::~Differentiator() = default;

void Differentiator::begin(std::span<const NodeId> members, const graph::NodeMaker& maker,
                           std::span<NodeId> derivatives) {
  const std::size_t size = std::max(adjoints_.size(), maker.dag().size());
  wanted_.resize(size);
  facts_.resize(size);
  adjoints_.resize(size, {kNone});
  for (const NodeId id : members) adjoints_[id].value = kNone;
  std::ranges::fill(derivatives, kNone);
}

// The operands of a wanted node need not be members, and it counts as a leaf.
void Differentiator::collectFacts(std::span<const NodeId> members, const graph::NodeMaker& maker) {
  for (const NodeId id : members) {
    std::uint8_t& facts = facts_[id];
    facts = wanted_[id] != kNotWanted ? kDepends : 0;
    if (facts != 0) continue;
    const Node& node = maker.dag().node(id);
    for (const NodeId operand : node.inputs()) facts |= facts_[operand];
    const bool is_finite = node.kind != Token::Kind::kConstant || std::isfinite(node.value);
    if (!is_finite || (node.isOperator() && mayBeExceptional(node.op))) facts |= kExceptional;
  }
}

void Differentiator::sweep(NodeId root, std::span<const NodeId> members, const graph::NodeMaker& maker,
                           std::span<NodeId> derivatives) {
  collectFacts(members, maker);
  if (has(root, kDepends)) adjoints_[root] = {maker.constant(1)};
  for (const NodeId id : members | std::views::reverse) {
    if (adjoints_[id].value == kNone) continue;
    if (wanted_[id] != kNotWanted) {
      derivatives[wanted_[id]] = nodeOf(adjoints_[id], maker);
    } else {
      pass(id, {root, maker}, maker);
    }
  }
  for (NodeId& derivative : derivatives) {
    if (derivative == kNone) derivative = maker.constant(0);
  }
}

// The chain rule: what the operands of a node contribute to the root. A partial derivative may be infinite or NaN where
// an operator above hides an operand that is not finite. The product is then compared with infinity, at the lowest node
// that cannot be exceptional itself.
void Differentiator::pass(NodeId id, const graph::Value& root, const graph::NodeMaker& maker) {
  const Node node = maker.dag().node(id);  // a copy, since nodes are added
  const auto valueOf = [&](NodeId operand) { return graph::Value(operand, maker); };
  const auto [x, y, z] = node.operands;
  const Adjoint adjoint = adjoints_[id];
  const bool has_exceptional =
      std::ranges::any_of(node.inputs(), [&](NodeId operand) { return has(operand, kExceptional); });
  for (int k = 0; k < node.arity(); ++k) {
    const NodeId operand = node.operands[static_cast<std::size_t>(k)];
    if (!has(operand, kDepends)) continue;
    const graph::Value partial = derivativeRow(node.op, k, valueOf(x), valueOf(y), valueOf(z), valueOf(id));
    if (partial.isLiteral() && partial.literal() == 0) continue;
    Adjoint contribution = times(adjoint, partial, maker);
    // A number neither hides nor fails: in rows in which it does not count, nothing below does.
    const bool is_number = partial.inRows().isLiteral();
    const bool fails =
        has(id, kFailed) ||
        (!is_number && (has(id, kHidden) ? has(id, kExceptional) : has_exceptional && mayFailBeside(node.op, k)));
    if (fails && !has(operand, kExceptional)) {
      contribution.value = finiteWith({contribution.value, maker}, root).in(maker);
    } else if (fails) {
      facts_[operand] |= kFailed;
    }
    if (has(id, kHidden) || (!is_number && mayHide(node.op, k))) facts_[operand] |= kHidden;
    add(operand, contribution, maker);
  }
}

void Differentiator::add(NodeId id, const Adjoint& contribution, const graph::NodeMaker& maker) {
  Adjoint& adjoint = adjoints_[id];
  adjoint = adjoint.value == kNone ? contribution : sum(adjoint, contribution, maker);
}

}  // namespace srjit
