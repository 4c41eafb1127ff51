// cbrt as a program.
#pragma once

#include <limits>

#include "ir/functions/logarithms.h"

namespace srjit::functions {

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
