// pow and cbrt as programs.
//
// x^y = e^(y log |x|) needs the logarithm with about ten bits (f64: 13) more than a number has, since the product with
// y may be as large as the logarithm of the largest number. So the logarithm is a sum of two numbers. Significands are
// brought nearer to 1 by one of a few factors, which have so few bits that the difference of the product and 1 is
// exact, and the first three terms of the series are sums of two numbers, too.
#pragma once

#include <limits>

#include "ir/functions/exponentials.h"
#include "ir/functions/logarithms.h"

namespace srjit::functions {

/// log(1 + f), |f| <= 0.201 (f64: 0.104): f + f^2 (-1/2 + f (third + f q)), where only q is one number. The tail is
/// small.
template <Precision kPrecision, class T>
Sum<T> exactLogOfReduced(const T& f) {
  using namespace real;
  constexpr double kThird = choose<kPrecision>(kPowerThird32, kPowerThird64);
  const T square = f * f;
  const T rounding = fma(f, f, -square);
  const T q = polynomial(choose<kPrecision, std::span<const double>>(kPowerLog32, kPowerLog64), f);
  const T cubic = fma(f, q, T(kThird));
  const T cubic_error = fma(f, q, T(kThird) - cubic);
  const T factor = fma(f, cubic, T(-0.5));
  const T factor_error = fma(f, cubic, T(-0.5) - factor);
  const T head = fma(square, factor, f);
  const T head_error = fma(square, factor, f - head);
  return {head, fma(rounding, factor, fma(square, fma(f, cubic_error, factor_error), head_error))};
}

/// The logarithm of x > 0. The tail may be 2^-18 (f64: 2^-43) of the head.
template <Precision kPrecision, class T>
Sum<T> exactLog(const T& x) {
  using namespace real;
  constexpr std::span<const Factor> kFactors = choose<kPrecision, std::span<const Factor>>(kFactors32, kFactors64);
  constexpr double kHigh = choose<kPrecision>(kShortLn2High32, kShortLn2High64);
  constexpr std::int32_t kLeast = choose<kPrecision>(0x3f4ccccd, 0x3feccccd);  // of 0.8 and 0.9
  const Parts<T> parts = partsOf<kPrecision, kLeast>(x, kHigh);
  T factor = T(kFactors.back().factor), high = T(kFactors.back().high), low = T(kFactors.back().low);
  for (std::size_t i = kFactors.size() - 1; i-- > 0;) {
    const auto is_here = lt(parts.m, T(kFactors[i].end));
    factor = select(is_here, T(kFactors[i].factor), factor);
    high = select(is_here, T(kFactors[i].high), high);
    low = select(is_here, T(kFactors[i].low), low);
  }
  const Sum<T> log_of_m = exactLogOfReduced<kPrecision>(fma(parts.m, factor, T(-1)));
  const Sum<T> sum = fastSum(parts.n + high, log_of_m.head);
  const T tail = fma(parts.n, T(choose<kPrecision>(kShortLn2Low32, kShortLn2Low64) / kHigh), sum.tail + log_of_m.tail);
  return {sum.head, tail + low};
}

/// x^y, with the exceptional values of ISO C, F.10.4.4. y is odd where its distance to an even integer is 1.
template <Precision kPrecision, class T>
T pow(const T& x, const T& y) {
  using namespace real;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const T base = abs(x);
  const Sum<T> log_of_base = exactLog<kPrecision>(base);
  const T of_zero = select(eq(x, T(0)), T(-kInfinity), log_of_base.head);
  const auto is_finite = lt(base, T(kInfinity));
  const T of_numbers = expOfProduct<kPrecision>(y, Sum<T>{select(is_finite, of_zero, base), log_of_base.tail});
  const T power = select(eq(base, T(1)), T(1), of_numbers);  // y may be infinite or NaN
  const T half = rint(y * T(0.5));
  const auto is_odd = eq(abs(fma(half, T(-2), y)), T(1));
  const T with_sign = copysign(power, select(is_odd, x, T(1)));
  const T of_fraction = select(is_finite, T(std::numeric_limits<double>::quiet_NaN()), with_sign);
  const T of_negative = select(eq(rint(y), y), with_sign, of_fraction);
  const T of_any = select(lt(x, T(0)), of_negative, with_sign);
  return select(eq(y, T(0)), T(1), of_any);
}

/// x = 2^(3 q + r) m with m between 2/3 and 4/3 and |r| <= 1, as in logarithms.h. A polynomial gives u, about the
/// reciprocal of the cube root of 2^r m, and one iteration follows: with y = 2^r m u^2, the root is y + (2^r m - y^3)
/// u^2 / 3, which has the square of the polynomial's error (about 4.7 times).
template <Precision kPrecision, class T>
T cbrt(const T& x) {
  using namespace real;
  using F = Format<kPrecision>;
  const T magnitude = abs(x);
  const Parts<T> parts = partsOf<kPrecision>(magnitude);
  const T power = fma(parts.n, T(1.0 / 3), T(F::kRounder + 2 * F::kBias));
  const T q = power - T(F::kRounder + 2 * F::kBias);
  const T r = fma(q, T(-3), parts.n);
  const auto is_low = lt(r, T(0)), is_high = lt(T(0), r);
  const T factor = select(is_low, T(0.5), select(is_high, T(2), T(1)));
  const T root_of_factor = select(is_low, T(0x1.428a2f98d728bp0), select(is_high, T(0x1.965fea53d6e3dp-1), T(1)));
  const T m = parts.m * factor;
  const T f = parts.m - T(1);
  const T u = polynomial(choose<kPrecision, std::span<const double>>(kCubeRoot32, kCubeRoot64), f) * root_of_factor;
  const T square_of_u = u * u;
  const T y = m * square_of_u;
  const T square = y * y;
  const T rounding = fma(y, y, -square);
  const T rest = fma(-square, y, m);
  const T error = fma(-rounding, y, rest);
  const T root = fma(error, square_of_u * T(1.0 / 3), y);
  const T scale =
      withWords(x, shiftLeft(lowerWord(power), F::kUpperFractionBits) - (F::kBias << F::kUpperFractionBits), 0);
  const T result = copysign(root * scale, x);
  const T of_numbers = select(eq(x, T(0)), x, result);
  return select(lt(magnitude, T(std::numeric_limits<double>::infinity())), of_numbers, x);
}

}  // namespace srjit::functions
