// IEEE arithmetic, choice and rounding in the domain of running_error.h.
#pragma once

#include "ir/numbers/running_error.h"

namespace srjit {

template <Arithmetic kArithmetic>
RunningError<kArithmetic> RunningError<kArithmetic>::sum(const RunningError& a, const RunningError& b) {
  const RunningError x = a.flushed();
  const RunningError y = b.flushed();
  const double r = x.value + y.value;
  if (x.isLost() || y.isLost()) return lost(r);
  if (!x.isFinite() || !y.isFinite()) return certain(r);
  const double back = r - x.value;  // D. Knuth, TAOCP 4.2.2: what the sum lost
  const bool exact = (x.value - (r - back)) + (y.value - back) == 0;
  return rounded(r, x.error + y.error, exact);
}

template <Arithmetic kArithmetic>
RunningError<kArithmetic> RunningError<kArithmetic>::product(const RunningError& a, const RunningError& b) {
  const RunningError x = a.flushed();
  const RunningError y = b.flushed();
  const double r = x.value * y.value;
  if (x.isLost() || y.isLost()) return lost(r);
  if (!x.isFinite() || !y.isFinite()) return x.maySpoil(y) ? lost(r) : certain(r);
  const bool zero = (x.isZero() && !y.mayChangeSign()) || (y.isZero() && !x.mayChangeSign());
  const bool exact = zero || (std::fma(x.value, y.value, -r) == 0 && std::fabs(r) > kTinyResidual);
  return rounded(r, productSpread(x, y), exact);
}

template <Arithmetic kArithmetic>
RunningError<kArithmetic> RunningError<kArithmetic>::quotient(const RunningError& a, const RunningError& b) {
  const RunningError x = a.flushed();
  const RunningError y = b.flushed();
  const double r = x.value / y.value;
  if (x.isLost() || y.isLost()) return lost(r);
  if (y.mayChangeSign()) return std::isnan(x.value) ? certain(r) : lost(r);
  if (y.value == 0) return x.mayChangeSign() ? lost(r) : certain(r);
  if (!x.isFinite() || !y.isFinite()) return r == 0 && x.mayChangeSign() ? RunningError{r, R::kSmallest} : certain(r);
  const double spread = (x.error + std::fabs(r) * y.error) / (std::fabs(y.value) - y.error);
  if (!R::kFast) {
    const bool exact = std::fma(r, y.value, -x.value) == 0 && std::fabs(x.value) > kTinyResidual;
    return rounded(r, spread, exact);
  }
  // div.approx is within 2 ulp, but gives 0 above 2^126.
  const double magnitude = std::fabs(r) + spread;
  const bool vanishes = std::fabs(y.value) + y.error > 0x1p126;
  return finished(r, spread, (4 * R::kHalfUlp + (vanishes ? 1 : 0)) * magnitude, false);
}

template <Arithmetic kArithmetic>
RunningError<kArithmetic> RunningError<kArithmetic>::fused(const RunningError& a, const RunningError& b,
                                                           const RunningError& c) {
  const RunningError x = a.flushed();
  const RunningError y = b.flushed();
  const RunningError z = c.flushed();
  const double r = std::fma(x.value, y.value, z.value);
  if (x.isLost() || y.isLost() || z.isLost()) return lost(r);
  if (!x.isFinite() || !y.isFinite()) return x.maySpoil(y) && !std::isnan(z.value) ? lost(r) : certain(r);
  if (!z.isFinite()) return certain(r);
  return rounded(r, productSpread(x, y) + z.error, false);
}

template <Arithmetic kArithmetic>
RunningError<kArithmetic> RunningError<kArithmetic>::smaller(const RunningError& a, const RunningError& b) {
  const RunningError x = a.flushed();
  const RunningError y = b.flushed();
  const double r = real::minimum(x.value, y.value);
  if (std::isnan(r)) return x.isNan() || y.isNan() ? certain(r) : lost(r);
  if (x.isLost() || y.isLost()) return lost(r);
  return {r, hull(r, std::min(x.low(), y.low()), std::min(x.high(), y.high()))};
}

template <Arithmetic kArithmetic>
RunningError<kArithmetic> RunningError<kArithmetic>::choice(const Mask& mask, const RunningError& x,
                                                            const RunningError& y) {
  const RunningError& taken = mask.reference ? x : y;
  const RunningError& other = mask.reference ? y : x;
  if (mask.certain) return taken;
  if (taken.isNan() && other.isNan()) return taken;
  if (taken.value == other.value) {
    const bool same_sign = std::signbit(taken.value) == std::signbit(other.value);
    return {taken.value, std::max({taken.error, other.error, same_sign ? 0 : R::kSmallest})};
  }
  const double reach = (std::fabs(taken.value - other.value) + other.error) * kSlack;
  return {taken.value, std::isnan(reach) ? kInfinity : std::max(taken.error, reach)};
}

template <Arithmetic kArithmetic>
RunningError<kArithmetic> RunningError<kArithmetic>::rounded(double r, double spread, bool exact) {
  const bool same = exact && spread == 0 && !R::kFast && std::isfinite(r) && R::round(r) == r;
  if (same) return {r, 0};
  return finished(r, spread, R::kHalfUlp * (std::fabs(r) + spread), r == 0 && spread == 0 && exact);
}

template <Arithmetic kArithmetic>
RunningError<kArithmetic> RunningError<kArithmetic>::finished(double r, double spread, double rounding,
                                                              bool exact_zero) {
  if (!std::isfinite(r) || exact_zero) return {r, std::isfinite(r) ? 0 : kInfinity};
  const double magnitude = std::fabs(r) + spread;
  // The reference rounds too: at most 2 ulp in any function, and as much where ends of intervals are
  // computed.
  double error = spread + rounding + 0x1p-51 * magnitude;
  if (std::fabs(r) - spread < 2 * R::kSmallestNormal) error += R::kFast ? R::kSmallestNormal : 4 * R::kSmallest;
  error *= kSlack;
  return magnitude + error <= R::kLargest ? RunningError{r, error} : lost(r);
}

}  // namespace srjit
