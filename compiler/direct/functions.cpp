// The short forms of functions: those of f32 `fast`, which give the bits of compiler/lowering/approximate.cpp as the
// assembler lowers them, and correctly rounded division and square root.
#include <bit>
#include <cmath>
#include <limits>

#include "compiler/direct/registers.h"
#include "compiler/direct/value.h"

#include "ir/numbers/fast_forms.h"
#include "ir/ops.h"

namespace srjit::direct {
namespace {

using sass::Mufu;

constexpr double kTurnsPerRadian = 0.159154936671257019;  // as ptxas has it, which is 1 / (2 pi) in f32
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

std::optional<Value> Builder::approximation(Function function, const Value& x, const Value& y) {
  const auto circular = [&](Mufu which) {
    return special(which, multiply(x, kTurnsPerRadian, sass::modifierOf(sass::Round::kTowardsZero)));
  };
  switch (function) {
    case Function::k_exp:
      return special(Mufu::kExp2, multiply(x, kLog2OfE));
    case Function::k_exp2:
      return special(Mufu::kExp2, x);
    case Function::k_log:
      return multiply(special(Mufu::kLog2, x), kLn2);
    case Function::k_log2:
      return special(Mufu::kLog2, x);
    case Function::k_log10:
      return multiply(special(Mufu::kLog2, x), kLog10Of2);
    case Function::k_pow:
      return power(x, y);
    case Function::k_sqrt:
      return special(Mufu::kRoot, x);
    case Function::k_sin:
      return circular(Mufu::kSin);
    case Function::k_cos:
      return circular(Mufu::kCos);
    case Function::k_tan: {
      const Value turns = multiply(x, kTurnsPerRadian, sass::modifierOf(sass::Round::kTowardsZero));
      return divide(special(Mufu::kSin, turns), special(Mufu::kCos, turns));
    }
    case Function::k_tanh:
      return special(Mufu::kTanh, x);
    default:
      return {};
  }
}

// As Emitter::pow in compiler/lowering/approximate.cpp, which has the reasons.
Value Builder::power(const Value& x, const Value& y) {
  const Value power = special(Mufu::kExp2, multiply(y, special(Mufu::kLog2, x.magnitude())));
  const bool never_negative = x.isLiteral() ? x.literal() >= 0 : x.isMagnitude() && !x.isNegated();
  Value result = power;
  if (!never_negative) {
    const Value small = extreme(y.magnitude(), kFirstWhole, false, 0);
    const Value rounded = add(small, kFirstWhole);
    const Mask whole = compare(sass::Compare::kEqual, add(rounded, -kFirstWhole), small);
    const Value of_negative = choose(whole.predicate, flipSign(power, rounded), kNaN);
    result = choose(compare(sass::Compare::kLess, x, 0.0).predicate, of_negative, power);
  }
  return choose(compare(sass::Compare::kEqual, y, 0.0).predicate, 1.0, result);
}

// |x| times a power of two, so that it is in [2^-23, 16) unless it is 0, infinite or NaN. Exponents of factors are
// multiples of four: every factor is a normal number, and its square root is a power of two.
Builder::Scaled Builder::scaled(const Value& x, std::uint32_t factor_of_none) {
  constexpr std::uint32_t kExponentInFours = 0x7e000000;
  if (x.isLiteral()) {
    const std::uint32_t bits = immediateOf(std::fabs(x.literal()));
    const std::uint32_t exponent = bits & kExponentInFours;
    const float factor = std::bit_cast<float>(factor_of_none - exponent);
    return {literal(static_cast<double>(std::bit_cast<float>(bits) * factor)), literalRegister(exponent)};
  }
  const ValueId exponent = code_.value(
      {.opcode = Opcode::kLop3RIR, .modifier = kLutAnd, .sources = {x.id(), kRz, kRz}, .immediate = kExponentInFours});
  return {multiply(x, {addInteger(exponent, factor_of_none, true), *this}), exponent};
}

// The sign of x / y, as a bit.
ValueId Builder::signOfQuotient(const Value& x, const Value& y) {
  return code_.value({.opcode = Opcode::kLop3RIR,
                      .modifier = kLutXorAnd,
                      .sources = {plain(x), kRz, plain(y)},
                      .immediate = kSignBit});
}

// P. Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", IBM J. R&D 34(1), 1990: q
// + (a - b q) r is rounded correctly where q is a neighbour of a / b and r is close enough to 1 / b. With b in [1, 2),
// a / b is at least 2^-24 / b units in the last place away from the middle of two numbers, so b |1 - b r| < 2^-23 is
// close enough. A plain Newton step from an estimate with error e fails for a few significands next to 2. With e + e^2,
// rounded up, instead of e it holds for every significand and every estimate that is up to six units off (verified
// exhaustively). Operands are scaled first, so that nothing overflows and residues are exact.
//
// A subnormal quotient is rounded once, by the last product. A quotient may be the midpoint of two subnormal numbers or
// next to it, so the factor must be on the right side: it is `above`, the smallest number of 24 bits that is not less
// than the quotient, times 1 - 2^-24 unless the residue is zero. No number of 24 bits lies between that product and the
// quotient. (Where `above` is the smallest normal number, the product is the midpoint below it, which rounds up to
// even.)
Value Builder::quotient(const Value& x, const Value& y) {
  constexpr std::uint32_t kTwoTo127 = 0x7f000000, kSmallestNormal = 0x00800000, kOne = 0x3f800000;
  constexpr std::uint8_t kUpwards = sass::modifierOf(sass::Round::kUp);
  const Scaled a = scaled(x.magnitude(), kTwoTo127), b = scaled(y.magnitude(), kTwoTo127);
  const Value estimate = special(Mufu::kReciprocal, b.value);
  const Value error = fuse(-b.value, estimate, 1.0);
  const Value reciprocal = fuse(estimate, fuse(error, error, error, kUpwards), estimate);
  const Value first = multiply(a.value, reciprocal);
  const Value second = fuse(fuse(-b.value, first, a.value), reciprocal, first);
  const Value residue = fuse(-b.value, second, a.value);
  const Value nearest = fuse(residue, reciprocal, second), above = fuse(residue, reciprocal, second, kUpwards);
  const ValueId exponent =
      code_.value({.opcode = Opcode::kIAdd3RRR, .negated = 2, .sources = {a.exponent, b.exponent, kRz}});
  const Value least(addInteger(exponent, kSmallestNormal, true), *this);
  const Mask is_subnormal = compare(sass::Compare::kLess, second, least);
  const Mask is_between = compare(sass::Compare::kNotEqual, residue, 0.0, is_subnormal.predicate);
  const ValueId half = code_.value({.opcode = Opcode::kSarRI, .sources = {exponent, kRz, kRz}, .immediate = 1});
  const Value factor(addInteger(half, kOne, false), *this), smaller_factor(addInteger(half, kOne - 1, false), *this);
  const Value last = choose(is_subnormal.predicate, above, nearest) * factor;
  // For zeros, infinities and NaN the residue is NaN, and the result is exact without it.
  const Value simple = multiply(a.value, estimate);
  const Mask is_nan = compare(sass::Compare::kUnordered, last, last);
  const Value magnitude = choose(is_nan.predicate, simple, last * choose(is_between.predicate, smaller_factor, factor));
  return result(
      {.opcode = Opcode::kLop3RRR, .modifier = kLutOr, .sources = {magnitude.id(), signOfQuotient(x, y), kRz}});
}

// Goldschmidt's iteration for the root g and half its reciprocal h, then a residue, as for quotients. The root of a
// subnormal number is normal. Correct for every significand and every estimate up to four units off (verified
// exhaustively).
Value Builder::root(const Value& x) {
  constexpr std::uint32_t kTwoTo126 = 0x7e800000, kExponentOfOne = 0x20000000;
  const Scaled scaled_x = scaled(x, kTwoTo126);
  const Value& a = scaled_x.value;
  const Value estimate = special(Mufu::kReciprocalRoot, a);
  const Value g = multiply(a, estimate), h = multiply(estimate, 0.5);
  const Value error = fuse(-h, g, 0.5);
  const Value better_g = fuse(g, error, g), better_h = fuse(h, error, h);
  const Value last = fuse(fuse(-better_g, better_g, a), better_h, better_g);
  const ValueId half =
      code_.value({.opcode = Opcode::kShrRI, .sources = {scaled_x.exponent, kRz, kRz}, .immediate = 1});
  const Value scaled_back = multiply(last, {addInteger(half, kExponentOfOne, false), *this});
  const Mask is_zero = compare(sass::Compare::kEqual, x, 0.0);
  const Mask is_either = compare(sass::Compare::kEqual, x, kInfinity, is_zero.predicate, sass::Combine::kOr);
  return choose(is_either.predicate, x, scaled_back);
}

ValueId Builder::addInteger(ValueId x, std::uint32_t y, bool negated) {
  return code_.value({.opcode = Opcode::kIAdd3RIR,
                      .negated = static_cast<std::uint8_t>(negated ? 1 : 0),
                      .sources = {x, kRz, kRz},
                      .immediate = y});
}

}  // namespace srjit::direct
