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

/// A scaled number, and the bits of the scale's exponent.
struct Builder::Scaled {
  Value value;
  Word exponent;
};

/// A root and half its reciprocal, both near, and the rest of the root's square.
struct Builder::NearRoot {
  Value root, half_reciprocal, residue;
};

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

Value Builder::estimate(Mufu of_float, Mufu of_double, const Value& x) {
  if (!is_wide_) return special(of_float, x);
  const Word upper(code_.value({.opcode = Opcode::kMufuR,
                                .modifier = sass::modifierOf(of_double),
                                .sources = {upperWordOf(x).id(), kRz, kRz}}),
                   *this);
  return numberOf(upper);
}

// x times a power of two, so that its magnitude is in [2^-52, 16) unless it is 0, infinite or NaN. Exponents of factors
// are multiples of four: every factor is a normal number, and its square root is a power of two.
Builder::Scaled Builder::scaled(const Value& x, std::int32_t factor_of_none) {
  const std::int32_t exponent_in_fours = is_wide_ ? 0x7fc00000 : 0x7e000000;
  if (x.isLiteral()) {
    const auto exponent = static_cast<std::int32_t>(immediateOf(std::fabs(x.literal()))) & exponent_in_fours;
    const auto factor = static_cast<std::uint32_t>(factor_of_none - exponent);
    const double scale = is_wide_ ? std::bit_cast<double>(std::uint64_t{factor} << 32)
                                  : static_cast<double>(std::bit_cast<float>(factor));
    const double number = is_wide_ ? x.literal() : static_cast<double>(static_cast<float>(x.literal()));
    return {literal(number * scale), exponent};
  }
  const Value bits(x.id(), *this);
  const Word exponent = upperWordOf(bits) & Word(exponent_in_fours);
  return {multiply(x, numberOf(Word(factor_of_none) - exponent)), exponent};
}

// Of a scaled y. In f64 the first step of order 3 leaves an error below an ulp, so that the next error is exact. What
// is added is rounded up: the reciprocals of significands next to 2 are just above the middle of two numbers, or just
// above a number.
Value Builder::betterReciprocal(const Value& y, const Value& estimate) {
  constexpr std::uint8_t kUpwards = sass::modifierOf(sass::Round::kUp);
  Value reciprocal = estimate;
  if (is_wide_) {
    const Value error = fuse(-y, reciprocal, 1.0);
    reciprocal = fuse(reciprocal, fuse(error, error, error), reciprocal);
  }
  const Value error = fuse(-y, reciprocal, 1.0);
  return fuse(reciprocal, fuse(error, error, error, kUpwards), reciprocal);
}

// P. Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", IBM J. R&D 34(1), 1990: q
// + (a - b q) r is rounded correctly where q is a neighbour of a / b and r is close enough to 1 / b. With p bits and b
// in [1, 2), a / b is at least 2^-p / b units in the last place away from the middle of two numbers, so b |1 - b r| <
// 2^(1-p) is close enough. A plain Newton step from an estimate with error e fails for a few significands next to 2.
// With e + e^2, rounded up, instead of e it holds for every significand. In f32 that was verified exhaustively, for
// estimates that are up to six units off. In f64, r is within half a unit and 2^-90 of 1 / b, which is enough for b <
// 2 - 2^-36; above, 1 / b is above the middle of two numbers or above a number by (2 - b)^2 / 8, and r, which is above
// 1 / b before it is rounded, is the number next to 1 / b. Operands are scaled first, so that nothing overflows and
// residues are exact.
//
// A subnormal quotient is rounded once, by the last product. A quotient may be the midpoint of two subnormal numbers or
// next to it, so the factor must be on the right side: it is `above`, the smallest number of p bits that is not less
// than the quotient, times 1 - 2^-p unless the residue is zero. No number of p bits lies between that product and the
// quotient. (Where `above` is the smallest normal number, the product is the midpoint below it, which rounds up to
// even.)
Value Builder::quotient(const Value& x, const Value& y) {
  constexpr std::uint8_t kUpwards = sass::modifierOf(sass::Round::kUp);
  constexpr std::uint8_t kOrWithBits = 0xf8;  // a | (b & c)
  const std::int32_t largest_power = is_wide_ ? 0x7fe00000 : 0x7f000000;
  const std::int32_t smallest_normal = is_wide_ ? 0x00100000 : 0x00800000, one = is_wide_ ? 0x3ff00000 : 0x3f800000;
  // First, since it takes one register, and the operands two.
  const Value of_x(plain(x), *this), of_y(plain(y), *this);
  const Value sign = withBits(kLutXorAnd, of_x, of_y, kSignBit);
  const Scaled a = scaled(x.magnitude(), largest_power), b = scaled(y.magnitude(), largest_power);
  const Value rough = estimate(Mufu::kReciprocal, Mufu::kReciprocalOfDouble, b.value);
  const Value reciprocal = betterReciprocal(b.value, rough);
  const Value first = multiply(a.value, reciprocal);
  const Value second = fuse(fuse(-b.value, first, a.value), reciprocal, first);
  const Value residue = fuse(-b.value, second, a.value);
  const Value nearest = fuse(residue, reciprocal, second), above = fuse(residue, reciprocal, second, kUpwards);
  const Word exponent = a.exponent - b.exponent;
  const Mask is_subnormal = compare(sass::Compare::kLess, second, numberOf(Word(smallest_normal) - exponent));
  const Mask is_between = compare(sass::Compare::kNotEqual, residue, 0.0, is_subnormal.predicate);
  const Word half = shift(Opcode::kSarRI, exponent, 1);
  const Value factor = numberOf(half + Word(one)), smaller_factor = numberOf(half + Word(one - 1), -1);
  const Value last = choose(is_subnormal.predicate, above, nearest) * factor;
  // For zeros, infinities and NaN the residue is NaN, and the result is exact without it.
  const Value simple = multiply(a.value, rough);
  const Mask is_nan = compare(sass::Compare::kUnordered, last, last);
  const Value magnitude = choose(is_nan.predicate, simple, last * choose(is_between.predicate, smaller_factor, factor));
  return withBits(kOrWithBits, magnitude, sign, kSignBit);
}

// The steps of quotient() without scaling and with one correction less, for operands that are NaN or of magnitudes near
// 1; the others, zeros and infinities among them, take quotient(). Results and residues are normal, since residues are
// multiples of 2^-47 |x|. The sum of magnitudes is large where an operand is, or where the estimate of 1 / y is since y
// is small; with NaN it is not. Of 1, the first quotient is the reciprocal itself: 1 / y is correct for every
// significand and estimates up to six units off (verified exhaustively).
//
// One correction is enough in f32. The reciprocal r is within (1/2 + 2^-20) units of 1 / b. With a and b in [1, 2), the
// first quotient q is within 1/2 + a (1/2 + 2^-20) units of a / b if a < b, else within 1.01 units. The residue's
// rounding and r change the result by less than 2^-22 units before it is rounded, which matters only if a / b is that
// near to the middle of two numbers. Then q is half a unit off, and the residue exact, or one and a half units off:
// then a and b are within 2^-17 of 2, and a / b is within 2^-14 units of a number. So what quotient() says about a
// neighbour of a / b holds. The quotients that are that near to the middle of two numbers are tested for every b.
Value Builder::usualQuotient(const Value& x, const Value& y) {
  constexpr double kLeast = 0x1p-60, kMost = 0x1p60, kMostOfReciprocals = 0x1p120;
  const auto isOutside = [](const Value& operand) {
    const double magnitude = std::fabs(operand.literal());
    return operand.isLiteral() && !(magnitude >= kLeast && magnitude <= kMost);
  };
  if (isOutside(x) || isOutside(y)) return quotient(x, y);
  const bool is_reciprocal = x.isLiteral() && std::fabs(x.literal()) == 1;
  const Value a = is_reciprocal ? Value(1.0) : Value(plain(x), *this), b(plain(y), *this);
  const Value rough = special(Mufu::kReciprocal, b);
  Value sum = add(b.magnitude(), rough.magnitude());
  if (!x.isLiteral()) sum = add(sum, a.magnitude());
  Mask is_rare = compare(sass::Compare::kGreater, sum, is_reciprocal ? kMostOfReciprocals : kMost);
  if (!x.isLiteral()) {
    is_rare = compare(sass::Compare::kLess, a.magnitude(), kLeast, is_rare.predicate, sass::Combine::kOr);
  }
  const Value reciprocal = betterReciprocal(b, rough);
  const Value first = is_reciprocal ? reciprocal : multiply(a, reciprocal);
  const Value residue = fuse(-b, first, a);
  const std::uint32_t branch = beginRare(is_rare);
  const Value rare = quotient(x.isLiteral() && !is_reciprocal ? x : a, b);
  if (!is_reciprocal) return endRareSum(branch, is_rare, residue, reciprocal, first, rare);
  const Value result = endRareProduct(branch, is_rare, residue, first, rare);
  return x.literal() < 0 ? result.negated() : result;
}

// Goldschmidt's iteration for the root g and half its reciprocal h, then a residue, as for quotients. The root of a
// subnormal number is normal. In f32 that is correct for every significand and every estimate up to four units off
// (verified exhaustively). In f64 the relative error before the last rounding is below 2^-102. A root's relative
// distance from the middle m of two numbers of 53 bits is about 2^-107 |t|, where t is the odd integer a - m^2 in units
// of m^2's last place: all numbers with |t| < 64 are tested.
Builder::NearRoot Builder::nearRoot(const Value& x, const Value& estimate) {
  Value g = multiply(x, estimate), h = multiply(estimate, 0.5);
  for (int i = 0; i < (is_wide_ ? 2 : 1); ++i) {
    const Value error = fuse(-h, g, 0.5);
    g = fuse(g, error, g);
    h = fuse(h, error, h);
  }
  return {g, h, fuse(-g, g, x)};
}

Value Builder::root(const Value& x) {
  const Scaled scaled_x = scaled(x, is_wide_ ? 0x7fd00000 : 0x7e800000);
  const Value& a = scaled_x.value;
  const NearRoot near = nearRoot(a, estimate(Mufu::kReciprocalRoot, Mufu::kReciprocalRootOfDouble, a));
  const Value last = fuse(near.residue, near.half_reciprocal, near.root);
  constexpr std::int32_t kHalfOfFactor = 0x20000000;  // the bias minus half of the factor's exponent
  const Word half = shift(Opcode::kShrRI, scaled_x.exponent, 1);
  const Value scaled_back = multiply(last, numberOf(half + Word(kHalfOfFactor)));
  const Mask is_zero = compare(sass::Compare::kEqual, x, 0.0);
  const Mask is_either = compare(sass::Compare::kEqual, x, kInfinity, is_zero.predicate, sass::Combine::kOr);
  return choose(is_either.predicate, x, scaled_back);
}

// The steps of root() without scaling, which changes no significand, for numbers from 2^-99 to 2^126, negative numbers
// and NaN; the others, zeros and infinity among them, take root(). The residue is a multiple of 2^-48 x. The estimate
// is above 2^50, or infinite, where x is small, and NaN where the root is.
Value Builder::usualRoot(const Value& x) {
  constexpr double kScale = 0x1p77, kMost = 0x1p127;
  if (x.isLiteral()) return root(x);
  const Value a(plain(x), *this);
  const Value rough = special(Mufu::kReciprocalRoot, a);
  const Mask is_rare = compare(sass::Compare::kGreater, fuse(rough, kScale, a).magnitude(), kMost);
  const NearRoot near = nearRoot(a, rough);
  const std::uint32_t branch = beginRare(is_rare);
  return endRareSum(branch, is_rare, near.residue, near.half_reciprocal, near.root, root(a));
}

}  // namespace srjit::direct
