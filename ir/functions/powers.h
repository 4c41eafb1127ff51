// pow as a program.
//
// x^y = 2^(y log2 |x|) needs the logarithm with about eleven bits (f64: 14) more than a number has, since the product
// with y may be as large as the exponent of the largest number. So the logarithm is a sum of two numbers. Significands
// are brought nearer to 1 by one of a few factors, which have so few bits that the difference of the product and 1 is
// exact, and the first three terms of the series are sums of two numbers, too.
#pragma once

#include <limits>

#include "ir/functions/exponentials.h"
#include "ir/functions/logarithms.h"

namespace srjit::functions {

/// log(1 + f), |f| <= 0.167 (f64: 0.084): f + f^2 (-1/2 + f / 3 + f^2 q). The tail is not small.
template <Precision kPrecision, class T>
Sum<T> exactLogOfReduced(const T& f) {
  using namespace real;
  const T square = f * f;
  const T rounding = fma(f, f, -square);
  const T q = polynomial(choose<kPrecision, std::span<const double>>(kPowerLog32, kPowerLog64), f);
  const Sum<T> third =
      product(f, choose<kPrecision>(kThirdHigh32, kThirdHigh64), choose<kPrecision>(kThirdLow32, kThirdLow64));
  Sum<T> factor = fastSum(T(-0.5), third.head);
  factor.tail = factor.tail + fma(square, q, third.tail);
  const T high = square * factor.head;
  const T low = fma(square, factor.tail, fma(rounding, factor.head, fma(square, factor.head, -high)));
  const Sum<T> sum = fastSum(f, high);
  return {sum.head, sum.tail + low};
}

/// The logarithm of x > 0 to the base 2.
template <Precision kPrecision, class T>
Sum<T> exactLog2(const T& x) {
  using namespace real;
  constexpr std::span<const Factor> kFactors = choose<kPrecision, std::span<const Factor>>(kFactors32, kFactors64);
  const Parts<T> parts = partsOf<kPrecision>(x);
  T factor = T(kFactors.back().factor), high = T(kFactors.back().high), low = T(kFactors.back().low);
  for (std::size_t i = kFactors.size() - 1; i-- > 0;) {
    const auto is_here = lt(parts.m, T(kFactors[i].end));
    factor = select(is_here, T(kFactors[i].factor), factor);
    high = select(is_here, T(kFactors[i].high), high);
    low = select(is_here, T(kFactors[i].low), low);
  }
  const Sum<T> log_of_m =
      product(exactLogOfReduced<kPrecision>(fma(parts.m, factor, T(-1))),
              choose<kPrecision>(kLog2OfEHigh32, kLog2OfEHigh64), choose<kPrecision>(kLog2OfELow32, kLog2OfELow64));
  const Sum<T> sum = fastSum(parts.n + high, log_of_m.head);
  return fastSum(sum.head, sum.tail + (log_of_m.tail + low));
}

/// x^y, with the exceptional values of ISO C, F.10.4.4. y is odd where the distance of y / 2 to an integer is 1/2. A y
/// beyond `kMost` gives what kMost gives, which is even: 0, 1 or infinity.
template <Precision kPrecision, class T>
T pow(const T& x, const T& y) {
  using namespace real;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kMost = choose<kPrecision>(0x1p40, 0x1p70);
  const T base = abs(x);
  const Sum<T> log_of_base = exactLog2<kPrecision>(base);
  const T of_zero = select(eq(x, T(0)), T(-kInfinity), log_of_base.head);
  const auto is_finite = lt(base, T(kInfinity));
  const T head = select(is_finite, of_zero, base);
  const T exponent = atMost(atLeast(y, -kMost), kMost);
  const T whole = exponent * head;
  const T rest = fma(exponent, log_of_base.tail, fma(exponent, head, -whole));
  const T power = exp2<kPrecision>(Sum<T>{whole, rest});
  const T half = exponent * T(0.5);
  const T nearest = rint(half);
  const auto is_odd = eq(abs(half - nearest), T(0.5));
  const T with_sign = copysign(power, select(is_odd, x, T(1)));
  const T of_fraction = select(is_finite, T(std::numeric_limits<double>::quiet_NaN()), with_sign);
  // Not the distance, since the half of the least number is 0.
  const T of_even = select(eq(nearest + nearest, exponent), with_sign, of_fraction);
  const T of_negative = select(is_odd, with_sign, of_even);
  const T of_numbers = select(lt(x, T(0)), of_negative, with_sign);
  const T of_any = select(eq(x, T(1)), T(1), of_numbers);
  return select(eq(y, T(0)), T(1), of_any);
}

}  // namespace srjit::functions
