// The elementary functions of functions.def in the domain of running_error.h.
//
// A function of one operand is taken for monotone between the ends of the operand's interval, or on either side of 0,
// which holds for all of the table but sin, cos and tan: so its values there bound what the operand's error does, to
// every order.
#pragma once

#include "ir/numbers/fast_forms.h"
#include "ir/numbers/running_arithmetic.h"
#include "ir/real.h"

namespace srjit {

template <Arithmetic kArithmetic>
double RunningError<kArithmetic>::functionRounding(Function function, const RunningError& x, const RunningError& y,
                                                   double magnitude) {
  if (R::kFast) {
    // The columns grow with the magnitudes of their operands, except pow's with the logarithm of its base.
    const double largest_y = std::fabs(y.value) + y.error;
    const double at_low = fastErrorOf(function, x.low(), largest_y, magnitude);
    const double at_high = fastErrorOf(function, x.high(), largest_y, magnitude);
    if (at_low != kNoFast) return std::isnan(at_low) || std::isnan(at_high) ? kInfinity : std::max(at_low, at_high);
  }
  const double ulps = ulpsOf(infoOf(function), kArithmetic.precision);
  return ulps * 2 * R::kHalfUlp * magnitude;
}

template <Arithmetic kArithmetic>
template <class F>
RunningError<kArithmetic> RunningError<kArithmetic>::monotone(Function function, F f, const RunningError& operand) {
  const RunningError x = operand.flushed();
  const double r = f(x.value);
  if (x.isLost()) return lost(r);
  if (x.isNan()) return certain(r);
  const double low = f(x.low());
  const double high = f(x.high());
  const double middle = x.low() < 0 && x.high() > 0 ? f(0.0) : r;
  if (std::isnan(r)) return std::isnan(low) && std::isnan(high) && std::isnan(middle) ? certain(r) : lost(r);
  if (!x.isFinite()) return std::isfinite(r) ? ofFunction(function, r, 0, x, x, r == 0) : certain(r);
  if (std::isinf(r)) {
    // Beside a pole the function is moderate; where the result overflows, it is not.
    const bool pole = x.error == 0 && std::fabs(f(std::nextafter(x.value, 0.5))) < 1e6;
    return pole ? certain(r) : lost(r);
  }
  const double spread = std::max({std::fabs(low - r), std::fabs(high - r), std::fabs(middle - r)});
  if (std::isnan(low) || std::isnan(high) || std::isinf(spread)) return lost(r);
  return ofFunction(function, r, spread, x, x, r == 0 && x.isZero());
}

/// sin and cos: their slope is at most 1, and their values differ by at most 2.
template <Arithmetic kArithmetic>
RunningError<kArithmetic> RunningError<kArithmetic>::wave(Function function, double r, const RunningError& operand) {
  const RunningError x = operand.flushed();
  if (x.isLost()) return lost(r);
  if (!x.isFinite()) return certain(r);
  return ofFunction(function, r, std::min(x.error, 2.0), x, x, r == 0 && x.isZero());
}

template <Arithmetic kArithmetic>
RunningError<kArithmetic> RunningError<kArithmetic>::tangent(const RunningError& operand) {
  const RunningError x = operand.flushed();
  const double r = real::tan(x.value);
  // The slope of cos is at most 1: no pole is nearer than |cos x|. The fast form divides sines, so its poles are
  // blurred.
  const double blur = R::kFast ? 0x1p-16 * (1 + std::fabs(x.value)) : 0;
  if (x.isFinite() && (x.error > 0 || R::kFast) && std::fabs(real::cos(x.value)) <= (x.error + blur) * kSlack) {
    return lost(r);
  }
  return monotone(Function::k_tan, [](double v) { return real::tan(v); }, operand);
}

template <Arithmetic kArithmetic>
RunningError<kArithmetic> RunningError<kArithmetic>::power(const RunningError& base, const RunningError& exponent) {
  const RunningError x = base.flushed();
  const RunningError y = exponent.flushed();
  const double r = real::pow(x.value, y.value);
  if (x.isLost() || y.isLost()) return lost(r);
  const bool exact = x.error == 0 && y.error == 0;
  if (!x.isFinite() || !y.isFinite() || x.isZero()) {
    // Special cases of ISO C F.10.4.4, which depend on signs, on 0 and on 1; a zero to an uncertain power among them.
    if (!exact) return lost(r);
    return std::isfinite(r) ? ofFunction(Function::k_pow, r, 0, x, y, r == 0) : certain(r);
  }
  const bool integer = y.error == 0 && std::rint(y.value) == y.value;
  if (x.low() <= 0 && !integer) {
    const bool no_integer = std::ceil(y.low()) > y.high();
    return x.high() < 0 && no_integer ? certain(r) : lost(r);
  }
  if (x.low() <= 0 && x.high() >= 0 && y.value < 0) return lost(r);
  // In either operand the power is monotone, so that its extremes are at corners, and at a base of 0.
  double spread = 0;
  for (const double a : {x.low(), x.high(), x.low() < 0 && x.high() > 0 ? 0.0 : x.high()}) {
    for (const double b : {y.low(), y.high()}) spread = std::max(spread, std::fabs(real::pow(a, b) - r));
  }
  if (!std::isfinite(spread) || !std::isfinite(r)) return lost(r);
  return ofFunction(Function::k_pow, r, spread, x, y, false);
}

template <Arithmetic kArithmetic>
RunningError<kArithmetic> RunningError<kArithmetic>::angle(const RunningError& ordinate, const RunningError& abscissa) {
  const RunningError x = ordinate.flushed();
  const RunningError y = abscissa.flushed();
  const double r = real::atan2(x.value, y.value);
  if (x.isLost() || y.isLost()) return lost(r);
  if (x.isNan() || y.isNan()) return certain(r);
  const bool exact = x.error == 0 && y.error == 0;
  if (!exact && (!x.isFinite() || !y.isFinite())) return lost(r);
  constexpr double kTurn = 6.283185307179587;
  double spread = 0;
  const bool may_cross = x.mayChangeSign() || (R::kFast && x.isZero()) || (x.isZero() && y.mayChangeSign());
  if (may_cross && y.low() <= 0) {
    spread = kTurn;  // around the origin, or across the cut
  } else if (!exact) {
    // Away from both, a rectangle's extreme angles are at its corners.
    for (const double a : {x.low(), x.high()}) {
      for (const double b : {y.low(), y.high()}) spread = std::max(spread, std::fabs(real::atan2(a, b) - r));
    }
  }
  return ofFunction(Function::k_atan2, r, spread, x, y, exact && r == 0 && x.isZero());
}

/// It jumps where the quotient is an integer, by |y|. Elsewhere it is x - q y with a constant q. A rest that is flushed
/// to zero jumps, too.
template <Arithmetic kArithmetic>
RunningError<kArithmetic> RunningError<kArithmetic>::remainder(const RunningError& dividend,
                                                               const RunningError& divisor) {
  const RunningError x = dividend.flushed();
  const RunningError y = divisor.flushed();
  const double r = real::mod(x.value, y.value);
  if (x.isLost() || y.isLost()) return lost(r);
  if (x.isNan() || y.isNan() || y.isZero() || !x.isFinite()) return certain(r);
  if (y.mayChangeSign()) return lost(r);
  if (!y.isFinite()) {
    if (x.mayChangeSign()) return lost(r);
    return std::isfinite(r) ? ofFunction(Function::k_mod, r, x.error, x, y, x.isZero()) : certain(r);
  }
  const double largest = std::fabs(y.value) + y.error;
  const bool may_flush = R::kFast && largest < R::kSmallestNormal / R::kHalfUlp;
  const bool exact = x.error == 0 && y.error == 0 && !may_flush;
  if (exact) return ofFunction(Function::k_mod, r, 0, x, y, r == 0);
  const auto [low, high] =
      std::minmax({x.low() / y.low(), x.low() / y.high(), x.high() / y.low(), x.high() / y.high()});
  const double least = std::floor(low - std::fabs(low) * (kSlack - 1));
  const double most = std::floor(high + std::fabs(high) * (kSlack - 1));
  const double spread = least == most && !may_flush ? x.error + std::fabs(most) * y.error : largest;
  return ofFunction(Function::k_mod, r, std::min(spread, largest) * kSlack, x, y, false);
}

// All other functions of one operand. Hidden friends of RunningError are better matches than these templates.
#define SRJIT_ARITY_1(id)                                                                                  \
  template <Arithmetic kArithmetic>                                                                        \
  RunningError<kArithmetic> id(const RunningError<kArithmetic>& x) {                                       \
    return RunningError<kArithmetic>::monotone(Function::k_##id, [](double v) { return real::id(v); }, x); \
  }
#define SRJIT_ARITY_2(id)
#define SRJIT_ARITY_3(id)
#define SRJIT_FUNCTION(id, arity, ...) SRJIT_ARITY_##arity(id)
#include "ir/functions.def"
#undef SRJIT_FUNCTION
#undef SRJIT_ARITY_1
#undef SRJIT_ARITY_2
#undef SRJIT_ARITY_3

}  // namespace srjit
