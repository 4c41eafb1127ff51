// The short forms of functions: those of f32 `fast`, which give the bits of lowering_fast.cpp as the assembler lowers
// them, and correctly rounded division and square root.
#include "compiler/direct_value.h"

namespace srjit::direct {
namespace {

using sass::Mufu;

constexpr double kLn2 = 0.693147180559945309;
constexpr double kLog10Of2 = 0.301029995663981195;
constexpr double kLog2OfE = 1.442695040888963407;
constexpr double kTurnsPerRadian = 0.159154936671257019;  // as ptxas has it, which is 1 / (2 pi) in f32
constexpr double kFirstWhole = 8388608;                   // 2^23
constexpr double kNaN = __builtin_nan("");

}  // namespace

Value Builder::approximation(Function function, const Value& x, const Value& y) {
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
      return refuse();
  }
}

// As Emitter::pow in lowering_fast.cpp, which says why.
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

Value Builder::quotient(const Value&, const Value&) { return refuse(); }
Value Builder::root(const Value&) { return refuse(); }

}  // namespace srjit::direct
