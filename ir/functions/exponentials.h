// exp, exp2 and expm1 as programs.
//
// W. Cody and W. Waite, "Software Manual for the Elementary Functions" (1980): x = n ln 2 + r with an integer n, so
// that e^x = 2^n e^r. ln 2 is the sum of a short number, whose product with n is exact, and a rest. Then r = head +
// tail, where the head is exact, and e^r = 1 + head + tail with a new tail. The sum of 1 and the head is rounded, but
// its error goes to the tail, so that the result has little more than the error of the last addition; a subnormal
// result is rounded once more.
#pragma once

#include "ir/functions/polynomials.h"
#include "ir/functions/steps.h"

namespace srjit::functions {

/// x = n ln 2 + r. The lower word of `power` has n + 2 kBias in its low bits.
template <class T>
struct ReducedExponent {
  T power;
  Sum<T> r;
};

/// For x with an exponent n of which `power` can be read.
template <Precision kPrecision, class T>
ReducedExponent<T> reduceExponent(const T& x) {
  using namespace real;
  constexpr double kRounder = Format<kPrecision>::kRounder + 2 * Format<kPrecision>::kBias;
  const T power = fma(x, T(choose<kPrecision>(kLog2OfEHigh32, kLog2OfEHigh64)), T(kRounder));
  const T n = power - T(kRounder);
  const T head = fma(n, T(-choose<kPrecision>(kShortLn2High32, kShortLn2High64)), x);
  return {power, {head, n * T(-choose<kPrecision>(kShortLn2Low32, kShortLn2Low64))}};
}

/// e^r - 1, |r| <= 0.3475, with an error that is small beside e^r.
template <Precision kPrecision, class T>
Sum<T> expOfReduced(const Sum<T>& r) {
  using namespace real;
  const T x = r.head + r.tail;
  const T q = polynomial(choose<kPrecision, std::span<const double>>(kExp32, kExp64), x);
  return {r.head, fma(x * x, q, r.tail)};
}

/// e^r - 1, with an error that is small beside it: the polynomial is longer, and the rounding of x counts. The
/// derivative of x^2 q is x to first order.
template <Precision kPrecision, class T>
Sum<T> fineExpOfReduced(const Sum<T>& r) {
  using namespace real;
  const T x = r.head + r.tail;
  const T error = (r.head - x) + r.tail;
  const T q = polynomial(choose<kPrecision, std::span<const double>>(kFineExp32, kFineExp64), x);
  const T tail = fma(error, x, r.tail);
  return {r.head, fma(x * x, q, tail)};
}

/// 2^n (1 + sum) for all n of the format, subnormal and infinite results included, where `power` is that of a
/// ReducedExponent.
template <Precision kPrecision, class T>
T valueOf(const T& power, const Sum<T>& sum) {
  const Sum<T> one = fastSum(T(1), sum.head);
  return timesPower<kPrecision>(one.head + (one.tail + sum.tail), power);
}

/// e^x. Beyond the limits it is 0 or infinite.
template <Precision kPrecision, class T>
T exp(const T& x) {
  using namespace real;
  const T inside = atMost(atLeast(x, choose<kPrecision>(-104.0, -746.0)), choose<kPrecision>(89.0, 710.0));
  const ReducedExponent<T> e = reduceExponent<kPrecision>(inside);
  return valueOf<kPrecision>(e.power, expOfReduced<kPrecision>(e.r));
}

/// x within limits beyond which 2^x is 0 or infinite.
template <Precision kPrecision, class T>
T insideOfExp2(const T& x) {
  using namespace real;
  return atMost(atLeast(x, choose<kPrecision>(-151.0, -1076.0)), choose<kPrecision>(129.0, 1025.0));
}

/// 2^(n + rest), where `power` is n + 2 kBias + Format::kRounder, and `rest` a number or a Sum: r = rest ln 2.
template <Precision kPrecision, class T, class Rest>
T exp2OfParts(const T& power, const Rest& rest) {
  const Sum<T> r = product(rest, choose<kPrecision>(kLn2High32, kLn2High64), choose<kPrecision>(kLn2Low32, kLn2Low64));
  return valueOf<kPrecision>(power, expOfReduced<kPrecision>(r));
}

/// 2^x.
template <Precision kPrecision, class T>
T exp2(const T& x) {
  constexpr double kRounder = Format<kPrecision>::kRounder + 2 * Format<kPrecision>::kBias;
  const T inside = insideOfExp2<kPrecision>(x);
  const T power = inside + T(kRounder);
  return exp2OfParts<kPrecision>(power, inside - (power - T(kRounder)));
}
template <Precision kPrecision, class T>
T exp2(const Sum<T>& x) {
  using namespace real;
  constexpr double kRounder = Format<kPrecision>::kRounder + 2 * Format<kPrecision>::kBias;
  const T inside = insideOfExp2<kPrecision>(x.head);
  const T tail = select(eq(inside, x.head), x.tail, T(0));
  const T power = inside + T(kRounder);
  return exp2OfParts<kPrecision>(power, Sum<T>{inside - (power - T(kRounder)), tail});
}

/// e^x - 1 = 2 (s - 1/2 + s (e^r - 1)) with s = 2^(n - 1), which does not overflow before the result. Below the lower
/// limit the result is -1. s - 1/2 is rounded if s is large; its error goes to the tail.
template <Precision kPrecision, class T>
T expm1(const T& x) {
  using namespace real;
  using F = Format<kPrecision>;
  const T inside = atMost(atLeast(x, choose<kPrecision>(-18.0, -38.0)), choose<kPrecision>(89.0, 710.0));
  const ReducedExponent<T> e = reduceExponent<kPrecision>(inside);
  const Sum<T> sum = fineExpOfReduced<kPrecision>(e.r);
  constexpr std::int32_t kRestOfBias = (F::kBias + 1) << F::kUpperFractionBits;
  const T s = withWords(x, shiftLeft(lowerWord(e.power), F::kUpperFractionBits) - kRestOfBias, 0);
  const T whole = s - T(0.5);
  const T lost = (s - whole) - T(0.5);
  const T head = fma(s, sum.head, whole);
  const T rounding = lost + fma(s, sum.head, whole - head);
  const T half = head + fma(s, sum.tail, rounding);
  const T result = half + half;
  // A tiny x is the result: half of a subnormal number may be none, and a zero keeps its sign.
  return select(lt(abs(x), T(choose<kPrecision>(0x1p-26, 0x1p-55))), x, result);
}

}  // namespace srjit::functions
