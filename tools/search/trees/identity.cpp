#include "tools/search/trees/identity.h"

#include <bit>
#include <cmath>

#include "ir/mix.h"

namespace srjit::search {
namespace {

constexpr std::uint64_t kVariables = 0x7661, kNumbers = 0x6e75, kReciprocals = 0x7265;  // seeds
constexpr std::uint64_t kAnyConstant = 0x9e6c63d0876a9a63u;                             // in shapes; odd
constexpr std::uint64_t kSmall = 1 << 20;  // above the magnitudes of whole constants that count as themselves
constexpr std::uint64_t kMinus = std::uint64_t{0} - 1;
constexpr std::uint64_t kShapeMinus =
    0xc2b2ae3d27d4eb4fu;  // odd: in shapes nothing cancels, since constants may differ

/// Odd, since products of odd numbers have reciprocals.
constexpr std::uint64_t randomOf(std::uint64_t seed, std::uint64_t value) { return combine(seed, value) | 1; }

/// 1 / x modulo 2^64, by Newton's iteration (H. Warren, "Hacker's Delight", 2nd ed. 2012, 10-16).
constexpr std::uint64_t reciprocal(std::uint64_t x) {
  if (x % 2 == 0) return randomOf(kReciprocals, x);
  std::uint64_t y = (3 * x) ^ 2;
  for (int bits = 5; bits < 64; bits *= 2) y *= 2 - x * y;
  return y;
}

/// A subtree's value, and that of its shape, which has one number in the place of all constants.
struct Value {
  std::uint64_t whole, shape;
  unsigned is_constant;  ///< 1 if it is, else 0
};

constexpr Value sum(const Value& x, const Value& y) {
  return {x.whole + y.whole, x.shape + y.shape, x.is_constant & y.is_constant};
}

constexpr Value negation(const Value& x) { return {x.whole * kMinus, x.shape * kShapeMinus, x.is_constant}; }

constexpr Value product(const Value& x, const Value& y) {
  return {x.whole * y.whole, x.shape * y.shape, x.is_constant & y.is_constant};
}

constexpr Value reciprocal(const Value& x) {
  return {reciprocal(x.whole), randomOf(kReciprocals, x.shape), x.is_constant};
}

/// Of any other operator. The order of operands that may be exchanged does not matter.
Value function(Op op, const Value* operands) {
  Value value{nameHashOf(op), nameHashOf(op), 1};
  const bool commutes = infoOf(op).has(OpProps::kCommutative);
  for (int i = 0; i < arityOf(op); ++i) {
    const auto& [whole, shape, is_constant] = operands[i];
    const bool is_exchangeable = commutes && i < 2;
    value.whole = is_exchangeable ? value.whole + mix(whole) : combine(value.whole, whole);
    value.shape = is_exchangeable ? value.shape + mix(shape) : combine(value.shape, shape);
    value.is_constant &= is_constant;
  }
  return {value.whole | 1, value.shape | 1, value.is_constant};
}

/// `operands`: as many as the operator has.
Value valueOf(Op op, const Value* operands) {
  const Value& x = operands[0];
  const Value& y = operands[1];
  switch (op) {
    case Op::kAdd:
      return sum(x, y);
    case Op::kSub:
      return sum(x, negation(y));
    case Op::kNeg:
      return negation(x);
    case Op::kMul:
      return product(x, y);
    case Op::kSquare:
      return product(x, x);
    case Op::kCube:
      return product(x, product(x, x));
    case Op::kDiv:
      return product(x, reciprocal(y));
    case Op::kInv:
      return reciprocal(x);
    default:
      return function(op, operands);
  }
}

Value valueOf(double constant) {
  if (std::fabs(constant) < static_cast<double>(kSmall)) {
    const auto whole = static_cast<std::int64_t>(constant);
    if (static_cast<double>(whole) == constant) return {static_cast<std::uint64_t>(whole), kAnyConstant, 1};
  }
  return {randomOf(kNumbers, std::bit_cast<std::uint64_t>(constant)), kAnyConstant, 1};
}

Value valueOfVariable(std::int32_t code) {
  const std::uint64_t value = randomOf(kVariables, static_cast<std::uint32_t>(code));
  return {value, value, 0};
}

}  // namespace

Identity identityOf(const TreeView& tree) {
  thread_local std::vector<Value> memory;
  if (memory.size() < tree.size() + 1) memory.resize(2 * tree.size() + 1);
  Value* end = memory.data();  // of the stack
  const double* constant = tree.constants.data();
  for (const std::int32_t code : tree.codes) {
    if (code > 0) {
      const Op op = kOpsByCode[static_cast<std::size_t>(code)];
      end -= arityOf(op);
      *end = valueOf(op, end);
      const bool is_small = end->whole + kSmall < 2 * kSmall;  // of either sign
      end->is_constant |= is_small ? 1U : 0U;
      if (end->is_constant != 0) end->shape = kAnyConstant;
    } else {
      *end = code == kConstantCode ? valueOf(*constant) : valueOfVariable(code);
    }
    ++end;
    ++constant;
  }
  const Value& root = end[-1];
  return {mix(root.shape), mix(root.whole), root.is_constant != 0};
}

}  // namespace srjit::search
