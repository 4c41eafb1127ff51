// erf as a program.
#pragma once

#include "ir/functions/exponentials.h"

namespace srjit::functions {

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
