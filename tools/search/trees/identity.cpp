#include "tools/search/trees/identity.h"

#include <bit>
#include <cmath>

#include "ir/mix.h"

namespace srjit::search {
namespace {

constexpr std::uint64_t kVariables = 0x7661, kNumbers = 0x6e75, kReciprocals = 0x7265;  // seeds
constexpr std::uint64_t kAnyConstant = 0x9e6c63d0876a9a63u;                             // in shapes; odd
constexpr std::uint64_t kSmall = 1 << 20;  // above the magnitudes that only constants have

/// An odd number, so that products of such have reciprocals.
constexpr std::uint64_t randomOf(std::uint64_t seed, std::uint64_t value) { return combine(seed, value) | 1; }

/// 1 / x modulo 2^64, by Newton's iteration (H. Warren, "Hacker's Delight", 2nd ed. 2012, 10-16).
constexpr std::uint64_t reciprocal(std::uint64_t x) {
  if (x % 2 == 0) return randomOf(kReciprocals, x);
  std::uint64_t y = (3 * x) ^ 2;
  for (int bits = 5; bits < 64; bits *= 2) y *= 2 - x * y;
  return y;
}
constexpr std::uint64_t kPerConstant = reciprocal(kAnyConstant);

/// What is known of a subtree.
struct Value {
  std::uint64_t whole, shape;
  unsigned marks;
};
constexpr unsigned kHasTerm = 1, kHasFactor = 2;  // as a sum, as a product: a constant, kAnyConstant in the shape
constexpr unsigned kIsConstant = 4;

constexpr Value constantOf(std::uint64_t whole) { return {whole, kAnyConstant, kHasTerm | kHasFactor | kIsConstant}; }
constexpr Value kZero = {0, 0, kIsConstant}, kOne = {1, 1, kIsConstant};

std::uint64_t wholeOf(double number) {
  if (std::fabs(number) < 0x1p62) {
    const auto whole = static_cast<std::int64_t>(number);
    if (static_cast<double>(whole) == number) return static_cast<std::uint64_t>(whole);
  }
  return randomOf(kNumbers, std::bit_cast<std::uint64_t>(number));
}

/// x + y, or x - y for the sign -1.
Value sum(const Value& x, const Value& y, std::uint64_t sign) {
  const auto withoutTerm = [](const Value& value) {
    return (value.marks & kHasTerm) != 0 ? value.shape - kAnyConstant : value.shape;
  };
  const unsigned has_term = (x.marks | y.marks) & kHasTerm;
  return {x.whole + sign * y.whole, withoutTerm(x) + sign * withoutTerm(y) + (has_term != 0 ? kAnyConstant : 0),
          has_term | (x.marks & y.marks & kIsConstant)};
}

std::uint64_t withoutFactor(const Value& value) {
  return (value.marks & kHasFactor) != 0 ? value.shape * kPerConstant : value.shape;
}

Value product(const Value& x, const Value& y) {
  const unsigned has_factor = (x.marks | y.marks) & kHasFactor;
  return {x.whole * y.whole, withoutFactor(x) * withoutFactor(y) * (has_factor != 0 ? kAnyConstant : 1),
          has_factor | (x.marks & y.marks & kIsConstant)};
}

Value quotient(const Value& x, const Value& y) {
  const std::uint64_t shape = reciprocal(withoutFactor(y));
  return product(x, {reciprocal(y.whole), (y.marks & kHasFactor) != 0 ? shape * kAnyConstant : shape, y.marks});
}

/// Of any other operator. The order of operands that may be exchanged does not matter.
Value function(Op op, const Value* operands) {
  const std::uint64_t seed = nameHashOf(op);
  Value value{seed, seed, kIsConstant};
  const bool commutes = infoOf(op).has(OpProps::kCommutative);
  for (int i = 0; i < arityOf(op); ++i) {
    const Value& operand = operands[i];
    if (commutes && i < 2) {
      value.whole += mix(operand.whole);
      value.shape += mix(operand.shape);
    } else {
      value.whole = combine(value.whole, operand.whole);
      value.shape = combine(value.shape, operand.shape);
    }
    value.marks &= operand.marks;
  }
  return {value.whole | 1, value.shape | 1, value.marks};
}

/// `operands`: as many as the operator has.
Value valueOf(Op op, const Value* operands) {
  const Value& x = operands[0];
  const Value& y = operands[1];
  constexpr std::uint64_t kMinus = std::uint64_t{0} - 1;
  switch (op) {
    case Op::kAdd:
      return sum(x, y, 1);
    case Op::kSub:
      return sum(x, y, kMinus);
    case Op::kNeg:
      return sum(kZero, x, kMinus);
    case Op::kMul:
      return product(x, y);
    case Op::kSquare:
      return product(x, x);
    case Op::kCube:
      return product(x, product(x, x));
    case Op::kDiv:
      return quotient(x, y);
    case Op::kInv:
      return quotient(kOne, x);
    default:
      return function(op, operands);
  }
}

/// Whether it is near 0, as only constants are.
constexpr bool isSmall(std::uint64_t whole) { return whole + kSmall < 2 * kSmall; }

}  // namespace

Identity identityOf(const TreeView& tree) {
  thread_local std::vector<Value> memory;
  if (memory.size() < tree.size() + 1) memory.resize(2 * tree.size() + 1);
  Value* end = memory.data();  // of the stack
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const std::int32_t code = tree.codes[i];
    if (code > 0) {
      const Op op = kOpsByCode[static_cast<std::size_t>(code)];
      end -= arityOf(op);
      const Value value = valueOf(op, end);
      *end++ = (value.marks & kIsConstant) != 0 || isSmall(value.whole) ? constantOf(value.whole) : value;
    } else if (code == kConstantCode) {
      *end++ = constantOf(wholeOf(tree.constants[i]));
    } else {
      const std::uint64_t value = randomOf(kVariables, static_cast<std::uint32_t>(code));
      *end++ = {value, value, 0};
    }
  }
  const Value& root = end[-1];
  return {mix(root.shape), mix(root.whole), (root.marks & kIsConstant) != 0};
}

}  // namespace srjit::search
