#include "compiler/direct/value.h"

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "compiler/direct/registers.h"
#include "ir/functions/programs.h"
#include "ir/rows.h"

namespace srjit::direct {

/// The opcodes of operations that both precisions have. Selection between doubles accepts no operand modifiers.
struct NumberOpcodes {
  Opcode add, add_literal, multiply, multiply_literal, fuse, fuse_literal, fuse_add_literal;
  Opcode compare, compare_literal, choose, choose_literal, round, sign_logic;
};

namespace {

constexpr NumberOpcodes kFloatOpcodes = {Opcode::kFAddRR,  Opcode::kFAddRI,  Opcode::kFMulRR,  Opcode::kFMulRI,
                                         Opcode::kFFmaRRR, Opcode::kFFmaRIR, Opcode::kFFmaRRI, Opcode::kFSetPRR,
                                         Opcode::kFSetPRI, Opcode::kFSelRR,  Opcode::kFSelRI,  Opcode::kFRndR,
                                         Opcode::kLop3RIR};
constexpr NumberOpcodes kDoubleOpcodes = {Opcode::kDAddRR,   Opcode::kDAddRI,  Opcode::kDMulRR,   Opcode::kDMulRI,
                                          Opcode::kDFmaRRR,  Opcode::kDFmaRIR, Opcode::kDFmaRRI,  Opcode::kDSetPRR,
                                          Opcode::kDSetPRI,  Opcode::kSelPair, Opcode::kSelPairI, Opcode::kFRndDouble,
                                          Opcode::kLop3Upper};
const NumberOpcodes& numberOpcodesOf(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return kFloatOpcodes;
    case Precision::kF64:
      return kDoubleOpcodes;
  }
  __builtin_unreachable();
}

template <class Operand>
Builder& builderOf(const Operand& x, const Operand& y) {
  return x.builder() ? *x.builder() : *y.builder();
}

void setSource(Operation& operation, unsigned slot, const Value& x) {
  operation.sources[slot] = x.id();
  operation.negated |= static_cast<std::uint8_t>((x.isNegated() ? 1U : 0U) << slot);
  operation.magnitude |= static_cast<std::uint8_t>((x.isMagnitude() ? 1U : 0U) << slot);
}

// The comparison with its operands exchanged.
sass::Compare mirrored(sass::Compare how) {
  switch (how) {
    case sass::Compare::kLess:
      return sass::Compare::kGreater;
    case sass::Compare::kLessEqual:
      return sass::Compare::kGreaterEqual;
    case sass::Compare::kGreater:
      return sass::Compare::kLess;
    case sass::Compare::kGreaterEqual:
      return sass::Compare::kLessEqual;
    default:
      return how;
  }
}

}  // namespace

Value operator+(const Value& x, const Value& y) {
  if (x.isLiteral() && y.isLiteral()) return {x.literal() + y.literal()};
  return builderOf(x, y).add(x, y);
}
Value operator-(const Value& x, const Value& y) { return x + y.negated(); }
Value operator*(const Value& x, const Value& y) {
  if (x.isLiteral() && y.isLiteral()) return {x.literal() * y.literal()};
  return builderOf(x, y).multiply(x, y);
}
Value operator/(const Value& x, const Value& y) {
  if (x.isLiteral() && y.isLiteral()) return {x.literal() / y.literal()};
  return builderOf(x, y).divide(x, y);
}
Value operator-(const Value& x) { return x.negated(); }
Mask lt(const Value& x, const Value& y) { return builderOf(x, y).compare(sass::Compare::kLess, x, y); }
Mask le(const Value& x, const Value& y) { return builderOf(x, y).compare(sass::Compare::kLessEqual, x, y); }
Mask eq(const Value& x, const Value& y) { return builderOf(x, y).compare(sass::Compare::kEqual, x, y); }
Value select(const Mask& mask, const Value& x, const Value& y) { return mask.builder->choose(mask.predicate, x, y); }

Value atMost(const Value& x, double limit) { return x.builder()->extreme(x, limit, false, sass::kPropagate); }
Value atLeast(const Value& x, double limit) { return x.builder()->extreme(x, limit, true, sass::kPropagate); }
Word operator+(const Word& x, const Word& y) { return builderOf(x, y).addWords(x, y, false); }
Word operator-(const Word& x, const Word& y) { return builderOf(x, y).addWords(x, y, true); }
Word operator&(const Word& x, const Word& y) { return builderOf(x, y).intersect(x, y); }
Word shiftLeft(const Word& x, int places) { return x.builder()->shift(Opcode::kShlRI, x, places); }
Word shiftRight(const Word& x, int places) { return x.builder()->shift(Opcode::kSarRI, x, places); }
Word upperWord(const Value& x) { return x.builder()->upperWordOf(x); }
Word lowerWord(const Value& x) { return x.builder()->lowerWordOf(x); }
Value withWords(const Value& x, const Word& upper, const Word& lower) { return x.builder()->numberOf(upper, lower); }

// The builder is that of any value that is no literal.
template <class... Values>
Value functionOf(Function function, const Values&... values) {
  Builder* builder = nullptr;
  ((builder = builder != nullptr ? builder : values.builder()), ...);
  return builder->function(function, std::array{values...});
}
#define SRJIT_VALUE Value
#define SRJIT_CALL functionOf
#include "ir/functions/define.def"

Builder::Builder(Code& code, Math math, Precision precision, Quotients quotients)
    : code_(code),
      precision_(precision),
      approximate_(isApproximate(math, precision)),
      is_wide_(isDouble(precision)),
      quotients_(quotients),
      opcodes_(numberOpcodesOf(precision)) {}

Value Builder::apply(Op op, const std::array<Value, kMaxArity>& operands) {
  return applyRow<Value>(op, operands[0], operands[1], operands[2]);
}

ValueId Builder::literalRegister(std::uint32_t bits) {
  if (bits == 0) return kRz;
  return code_.value({.opcode = Opcode::kMovI, .immediate = bits});
}

Value Builder::literal(double value) {
  if (!is_wide_) return {literalRegister(immediateOf(value)), *this};
  const auto bits = std::bit_cast<std::uint64_t>(value);
  if (bits == 0) return {kRz, *this};
  return result({.opcode = Opcode::kMovPairI, .immediate = code_.wideLiteral(bits)});
}

Operation Builder::withSources(Opcode registers, Opcode immediate, const Value& x, const Value& y, Operation rest) {
  setSource(rest, 0, x);
  if (!y.isLiteral()) {
    rest.opcode = registers;
    setSource(rest, 1, y);
  } else if (isImmediate(y)) {
    rest.opcode = immediate;
    rest.immediate = immediateOf(y);
  } else {
    rest.opcode = registers;
    rest.sources[1] = plain(y);
  }
  return rest;
}

ValueId Builder::plain(const Value& x) {
  if (x.isLiteral()) return literal(x.literal()).id();
  if (!x.isNegated() && !x.isMagnitude()) return x.id();
  if (is_wide_) {
    constexpr std::uint8_t kFlip = 0x3c, kClear = 0x30, kSet = 0xfc;  // a ^ b, a & ~b, a | b, with b the sign's bit
    return result({.opcode = Opcode::kLop3Upper,
                   .modifier = !x.isMagnitude() ? kFlip
                               : x.isNegated()  ? kSet
                                                : kClear,
                   .sources = {x.id(), kRz, kRz},
                   .immediate = kSignBit})
        .id();
  }
  // x + (-0) is x for every x, including signed zeros.
  Operation operation{.opcode = Opcode::kFAddRR, .negated = 2};
  setSource(operation, 0, x);
  return code_.value(operation);
}

Value Builder::add(const Value& x, const Value& y) {
  if (x.isLiteral()) return add(y, x);
  return result(withSources(opcodes_.add, opcodes_.add_literal, x, y));
}

Value Builder::multiply(const Value& x, const Value& y, std::uint8_t modifier) {
  if (x.isLiteral()) return multiply(y, x, modifier);
  return result(withSources(opcodes_.multiply, opcodes_.multiply_literal, x, y, {.modifier = modifier}));
}

Value Builder::fuse(const Value& x, const Value& y, const Value& z, std::uint8_t modifier) {
  if (x.isLiteral() && y.isLiteral()) return fuse(literal(x.literal()), y, z, modifier);
  if (x.isLiteral()) return fuse(y, x, z, modifier);
  if (y.isLiteral() && (z.isLiteral() || !isImmediate(y))) return fuse(x, literal(y.literal()), z, modifier);
  if (z.isLiteral() && !isImmediate(z)) return fuse(x, y, literal(z.literal()), modifier);
  Operation operation{.opcode = y.isLiteral()   ? opcodes_.fuse_literal
                                : z.isLiteral() ? opcodes_.fuse_add_literal
                                                : opcodes_.fuse,
                      .modifier = modifier};
  // The multiplier negates the product, so either factor may carry the sign.
  setSource(operation, 0, y.isNegated() && !y.isLiteral() ? x.negated() : x);
  if (y.isLiteral()) {
    operation.immediate = immediateOf(y);
  } else {
    setSource(operation, 1, y.isNegated() ? y.negated() : y);
  }
  if (z.isLiteral()) {
    operation.immediate = immediateOf(z);
  } else {
    setSource(operation, 2, z);
  }
  return result(operation);
}

Value Builder::extreme(const Value& x, const Value& y, bool largest, std::uint8_t modifier) {
  if (x.isLiteral()) return extreme(y, x, largest, modifier);
  if (is_wide_) return extremeOfDoubles(x, y, largest);
  return result(withSources(Opcode::kFMnMxRR, Opcode::kFMnMxRI, x, y,
                            {.modifier = modifier, .condition = largest ? opposite(kAlways) : kAlways}));
}

// `chosen` is x with the sign bit set if either operand has it (maximum: cleared if either lacks it). Where x is the
// extreme, that leaves x unchanged; of two zeros it gives the right one. So ties select `chosen`, and so does NaN in x;
// NaN in y selects y.
Value Builder::extremeOfDoubles(const Value& x, const Value& y, bool largest) {
  constexpr std::uint8_t kTakeSign = 0xf8, kLoseSign = 0xb0;  // a | (b & c), a & (c | ~b), with b the sign's bit
  const Value a = bare(x), b(plain(y), *this);
  const Value chosen = result({.opcode = Opcode::kLop3Upper,
                               .modifier = largest ? kLoseSign : kTakeSign,
                               .sources = {a.id(), kRz, b.id()},
                               .immediate = kSignBit});
  const Mask first = compare(largest ? sass::Compare::kGreaterEqual : sass::Compare::kLessEqual, a, b);
  const Mask or_nan = compare(sass::Compare::kUnordered, a, a, first.predicate, sass::Combine::kOr);
  return choose(or_nan.predicate, chosen, b);
}

Value Builder::special(sass::Mufu function, const Value& x) {
  const Value source = x.isLiteral() ? literal(x.literal()) : x;
  Operation operation{.opcode = Opcode::kMufuR, .modifier = sass::modifierOf(function)};
  setSource(operation, 0, source);
  return result(operation);
}

Value Builder::rounded(sass::Round direction, const Value& x) {
  const Value source = x.isLiteral() ? literal(x.literal()) : x;
  Operation operation{.opcode = opcodes_.round, .modifier = sass::modifierOf(direction)};
  setSource(operation, 0, source);
  return result(operation);
}

Mask Builder::compare(sass::Compare how, const Value& x, const Value& y, PredicateId condition, sass::Combine combine) {
  if (x.isLiteral() && y.isLiteral()) return compare(how, literal(x.literal()), y, condition, combine);
  if (x.isLiteral()) return compare(mirrored(how), y, x, condition, combine);
  return {code_.truth(withSources(opcodes_.compare, opcodes_.compare_literal, x, y,
                                  {.modifier = sass::modifierOf(how, false, combine), .condition = condition})),
          this};
}

Value Builder::choose(PredicateId condition, const Value& x, const Value& y) {
  if (x.isLiteral()) {
    if (y.isLiteral()) return choose(condition, literal(x.literal()), y);
    return choose(opposite(condition), y, x);
  }
  if (is_wide_) {
    return result(withSources(opcodes_.choose, opcodes_.choose_literal, bare(x), bare(y), {.condition = condition}));
  }
  return result(withSources(opcodes_.choose, opcodes_.choose_literal, x, y, {.condition = condition}));
}

Value Builder::copySign(const Value& magnitude, const Value& sign) {
  if (sign.isLiteral()) return std::signbit(sign.literal()) ? magnitude.magnitude().negated() : magnitude.magnitude();
  if (sign.isMagnitude()) {
    const Value known = sign.isNegated() ? magnitude.magnitude().negated() : magnitude.magnitude();
    return known.isLiteral() ? literal(known.literal()) : known;  // a comparison needs a value
  }
  // (a & ~b) | (c & b) with b the sign's bit; ~c for a sign that is changed.
  constexpr std::uint8_t kTakeSign = 0xb8, kTakeOpposite = 0x74;
  const Value bits = magnitude.isLiteral() ? literal(magnitude.literal()) : Value(magnitude.id(), *this);
  return withBits(sign.isNegated() ? kTakeOpposite : kTakeSign, bits, {sign.id(), *this}, kSignBit);
}

Value Builder::withBits(std::uint8_t table, const Value& x, const Value& y, std::uint32_t bits) {
  return result(
      {.opcode = opcodes_.sign_logic, .modifier = table, .sources = {x.id(), kRz, y.id()}, .immediate = bits});
}

Value Builder::flipSign(const Value& x, const Value& y) {
  constexpr std::uint8_t kXor = 0x3c;  // a ^ b
  const ValueId bits = code_.value({.opcode = Opcode::kShlRI, .sources = {plain(y), kRz, kRz}, .immediate = 31});
  return result({.opcode = Opcode::kLop3RRR, .modifier = kXor, .sources = {plain(x), bits, kRz}});
}

Value Builder::divide(const Value& x, const Value& y) {
  if (!approximate()) return quotients_ == Quotients::kTwoWays ? usualQuotient(x, y) : quotient(x, y);
  const Value reciprocal = special(sass::Mufu::kReciprocal, y);
  if (x.isLiteral() && x.literal() == 1) return reciprocal;
  return multiply(x, reciprocal, sass::kFlush);
}

// A literal is the second operand of a sum or of a conjunction, or the first of a difference.
Word Builder::addWords(const Word& x, const Word& y, bool subtract) {
  if (x.isLiteral() && !subtract) return addWords(y, x, false);
  const auto addLiteral = [&](const Word& word, std::uint32_t literal, bool negated) -> Word {
    return {code_.value({.opcode = Opcode::kIAdd3RIR,
                         .negated = static_cast<std::uint8_t>(negated ? 1 : 0),
                         .sources = {word.id(), kRz, kRz},
                         .immediate = literal}),
            *this};
  };
  if (x.isLiteral()) return addLiteral(y, x.literal(), true);
  if (y.isLiteral()) return addLiteral(x, subtract ? 0 - y.literal() : y.literal(), false);
  return {code_.value({.opcode = Opcode::kIAdd3RRR,
                       .negated = static_cast<std::uint8_t>(subtract ? 2 : 0),
                       .sources = {x.id(), y.id(), kRz}}),
          *this};
}

Word Builder::intersect(const Word& x, const Word& y) {
  if (x.isLiteral()) return intersect(y, x);
  if (y.isLiteral()) {
    return {
        code_.value(
            {.opcode = Opcode::kLop3RIR, .modifier = kLutAnd, .sources = {x.id(), kRz, kRz}, .immediate = y.literal()}),
        *this};
  }
  return {code_.value({.opcode = Opcode::kLop3RRR, .modifier = kLutAnd, .sources = {x.id(), y.id(), kRz}}), *this};
}

ValueId Builder::idOf(const Word& word) { return word.isLiteral() ? literalRegister(word.literal()) : word.id(); }

Word Builder::shift(Opcode opcode, const Word& x, int places) {
  const ValueId word = idOf(x);
  return {code_.value({.opcode = opcode, .sources = {word, kRz, kRz}, .immediate = static_cast<std::uint32_t>(places)}),
          *this};
}

Word Builder::upperWordOf(const Value& x) {
  if (!is_wide_) return {plain(x), *this};
  return {code_.value({.opcode = Opcode::kUpperWord, .sources = {plain(x), kRz, kRz}}), *this};
}

Word Builder::lowerWordOf(const Value& x) {
  if (!is_wide_) return {plain(x), *this};
  return {code_.value({.opcode = Opcode::kLowerWord, .sources = {plain(x), kRz, kRz}}), *this};
}

Value Builder::numberOf(const Word& upper, const Word& lower) {
  constexpr std::uint8_t kSecond = 0xcc;  // b
  if (!is_wide_) return {idOf(upper), *this};
  const ValueId low = idOf(lower);
  return result({.opcode = Opcode::kJoinWords, .modifier = kSecond, .sources = {low, idOf(upper), kRz}});
}

Value Builder::function(Function function, std::span<const Value> x) {
  if (infoOf(function).code == FunctionCode::kOperation && function != Function::k_sqrt) return exact(function, x);
  if (approximate()) {
    if (const std::optional<Value> result = approximation(function, x[0], x.back())) return *result;
  }
  if (function == Function::k_sqrt) return quotients_ == Quotients::kTwoWays ? usualRoot(x[0]) : root(x[0]);
  const auto inRegister = [&](const Value& operand) {
    return operand.isLiteral() ? literal(operand.literal()) : operand;
  };
  const Value first = inRegister(x.front());
  const Value second = x.size() == 1 ? first : inRegister(x.back());
  const bool was_approximate = std::exchange(approximate_, false);
  const Value result = functions::apply(precision_, function, first, second);
  approximate_ = was_approximate;
  return result;
}

std::uint32_t Builder::beginRare(const Mask& is_rare) {
  has_branches_ = true;
  const PredicateId in_any_lane = code_.truth({.opcode = Opcode::kVoteAny, .condition = is_rare.predicate});
  return code_.append({.opcode = Opcode::kBra, .guard = opposite(in_any_lane), .synchronized = true});
}

Value Builder::replaced(const Mask& is_rare, const Value& usual, const Value& rare) {
  const Value result = choose(opposite(is_rare.predicate), usual, rare);
  Operation& last = code_.operation(code_.size() - 1);
  last.synchronized = last.in_place = true;
  return result;
}

Value Builder::fuseAtTarget(std::uint32_t branch, const Value& a, const Value& b, const Value& c) {
  const std::uint32_t end = code_.size();
  const Value sum = fuse(a, b, c);
  code_.operation(end).synchronized = true;
  code_.operation(branch).immediate = end;
  return sum;
}

// A product -0 keeps the other summand, its zeros included.
Value Builder::endRareSum(std::uint32_t branch, const Mask& is_rare, const Value& a, const Value& b, const Value& c,
                          const Value& rare) {
  const Value factor = replaced(is_rare, a, -0.0), one = replaced(is_rare, b, 1.0), sum = replaced(is_rare, c, rare);
  return fuseAtTarget(branch, factor, one, sum);
}

// A zero times b has the sign of b, so the sum is b; an infinite b has another factor.
Value Builder::endRareProduct(std::uint32_t branch, const Mask& is_rare, const Value& a, const Value& b,
                              const Value& rare) {
  const Mask is_infinite = compare(sass::Compare::kEqual, rare.magnitude(), std::numeric_limits<double>::infinity());
  const Value factor = replaced(is_rare, a, choose(is_infinite.predicate, 1.0, literal(0)));
  const Value sum = replaced(is_rare, b, rare);
  return fuseAtTarget(branch, factor, sum, sum);
}

Value Builder::exact(Function function, std::span<const Value> x) {
  switch (function) {
    case Function::k_abs:
      return x[0].magnitude();
    case Function::k_copysign:
      return copySign(x[0], x[1]);
    case Function::k_minimum:
      return extreme(x[0], x[1], false, sass::kPropagate);
    case Function::k_maximum:
      return extreme(x[0], x[1], true, sass::kPropagate);
    case Function::k_floor:
      return rounded(sass::Round::kDown, x[0]);
    case Function::k_ceil:
      return rounded(sass::Round::kUp, x[0]);
    case Function::k_rint:
      return rounded(sass::Round::kNearest, x[0]);
    case Function::k_fma:
      return fuse(x[0], x[1], x[2]);
    default:
      __builtin_unreachable();
  }
}

}  // namespace srjit::direct
