#include "passes/gradient/graph_domain.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "ir/rows.h"

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
