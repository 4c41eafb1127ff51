// exp, exp2, expm1 and erf as programs.
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

/// x = n ln 2 + r, where r is the sum of `head` and kTailOfOne n. The lower word of `power` has n + 2 kBias in its low
/// bits.
template <class T>
struct PowerOfTwo {
  T power, n, head;
};

/// For x with an exponent n from which `power` can be read.
template <Precision kPrecision, class T>
PowerOfTwo<T> powerOfTwo(const T& x) {
  using namespace real;
  constexpr double kRounder = Format<kPrecision>::kRounder + 2 * Format<kPrecision>::kBias;
  const T power = fma(x, T(choose<kPrecision>(kLog2OfEHigh32, kLog2OfEHigh64)), T(kRounder));
  const T n = power - T(kRounder);
  const T head = fma(n, T(-choose<kPrecision>(kShortLn2High32, kShortLn2High64)), x);
  return {power, n, head};
}
template <Precision kPrecision>
inline constexpr double kTailOfOne = -choose<kPrecision>(kShortLn2Low32, kShortLn2Low64);

/// The same with r as a sum; `power` as there.
template <Precision kPrecision, class T>
Reduced<T> reduceExponent(const T& x) {
  const PowerOfTwo<T> e = powerOfTwo<kPrecision>(x);
  return {e.power, {e.head, e.n * T(kTailOfOne<kPrecision>)}};
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

/// 2^n (1 + sum) for all n of the format, subnormal and infinite results included, where `power` is that of
/// reduceExponent().
template <Precision kPrecision, class T>
T valueOf(const T& power, const Sum<T>& sum) {
  const Sum<T> one = fastSum(T(1), sum.head);
  return timesPower<kPrecision>(one.head + (one.tail + sum.tail), power);
}

/// x, limited to the exponents of e beyond which the power is 0 or infinite, each plus `by`.
template <Precision kPrecision, class T>
T insideOfExp(const T& x, double by) {
  using namespace real;
  return atMost(atLeast(x, choose<kPrecision>(-104.0, -746.0) + by), choose<kPrecision>(89.0, 710.0) + by);
}

/// e^x. Beyond the limits it is 0 or infinite.
template <Precision kPrecision, class T>
T exp(const T& x) {
  const Reduced<T> e = reduceExponent<kPrecision>(insideOfExp<kPrecision>(x, 0));
  return valueOf<kPrecision>(e.power, expOfReduced<kPrecision>(e.r));
}

/// e^(x y) for a y of two numbers, rounded little more than once. The tail of y may be 2^-18 (f64: 2^-43) of the head.
/// The head of the product is rounded to few enough bits that the sum of 1 and the head of r is exact.
template <Precision kPrecision, class T>
T expOfProduct(const T& x, const Sum<T>& y) {
  using namespace real;
  constexpr double kOffset = choose<kPrecision>(384, 3072);  // the number inside does not change its exponent
  const T sum = fma(x, y.head, T(kOffset));
  const T inside = insideOfExp<kPrecision>(sum, kOffset);
  const T head = inside - T(kOffset);
  const T tail = fma(x, y.tail, fma(x, y.head, -head));
  const PowerOfTwo<T> e = powerOfTwo<kPrecision>(head);
  const T rest = fma(e.n, T(kTailOfOne<kPrecision>), select(eq(inside, sum), tail, T(0)));
  const Sum<T> result = expOfReduced<kPrecision>(Sum<T>{e.head, rest});
  return timesPower<kPrecision>((T(1) + result.head) + result.tail, e.power);
}

/// 2^x. Beyond the limits it is 0 or infinite. The rest r ln 2 has an error that is small beside it.
template <Precision kPrecision, class T>
T exp2(const T& x) {
  using namespace real;
  constexpr double kRounder = Format<kPrecision>::kRounder + 2 * Format<kPrecision>::kBias;
  const T inside = atMost(atLeast(x, choose<kPrecision>(-151.0, -1076.0)), choose<kPrecision>(129.0, 1025.0));
  const T power = inside + T(kRounder);
  const T rest = inside - (power - T(kRounder));
  const Sum<T> r = product(rest, choose<kPrecision>(kLn2High32, kLn2High64), choose<kPrecision>(kLn2Low32, kLn2Low64));
  return valueOf<kPrecision>(power, expOfReduced<kPrecision>(r));
}

/// e^x - 1 = 2 (s - 1/2 + s (e^r - 1)) with s = 2^(n - 1), which does not overflow before the result. Below the lower
/// limit the result is -1. s - 1/2 is rounded if s is large; its error goes to the tail.
template <Precision kPrecision, class T>
T expm1(const T& x) {
  using namespace real;
  using F = Format<kPrecision>;
  const T inside = atMost(atLeast(x, choose<kPrecision>(-18.0, -38.0)), choose<kPrecision>(89.0, 710.0));
  const Reduced<T> e = reduceExponent<kPrecision>(inside);
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

/// A polynomial below 1; above 1 - e^(-x^2) q(x - 2), where the difference is exact. Beyond `kMost` it is 1.
template <Precision kPrecision, class T>
T erf(const T& x) {
  using namespace real;
  constexpr double kMost = choose<kPrecision>(4.0, 6.0);
  const T magnitude = abs(x);
  const T square = magnitude * magnitude;
  const T q = polynomial(choose<kPrecision, std::span<const double>>(kErf32, kErf64), square);
  const T small = fma(magnitude, q, magnitude);
  const T inside = atMost(magnitude, kMost);
  const Reduced<T> e = reduceExponent<kPrecision>(inside * -inside);
  const T power = valueOf<kPrecision>(e.power, expOfReduced<kPrecision>(e.r));
  const T distance = inside - T(2);
  const T complement = polynomial(choose<kPrecision, std::span<const double>>(kErfc32, kErfc64), distance);
  const T large = fma(-power, complement, T(1));
  return copysign(select(lt(magnitude, T(1)), small, large), x);
}

}  // namespace srjit::functions
