// The domain of IEEE numbers on the host, float or double, ISO C++ only: the reference for every other domain.
#pragma once

#include <cmath>
#include <limits>

namespace srjit::real {

using std::abs;
using std::acos;
using std::acosh;
using std::asin;
using std::asinh;
using std::atan;
using std::atan2;
using std::atanh;
using std::cbrt;
using std::ceil;
using std::copysign;
using std::cos;
using std::cosh;
using std::erf;
using std::exp;
using std::exp2;
using std::expm1;
using std::floor;
using std::fma;
using std::log;
using std::log10;
using std::log1p;
using std::log2;
using std::pow;
using std::rint;  // the default rounding mode is to nearest, ties to even
using std::sin;
using std::sinh;
using std::sqrt;
using std::tan;
using std::tanh;

template <class T>
bool lt(T x, T y) {
  return x < y;
}
template <class T>
bool le(T x, T y) {
  return x <= y;
}
template <class T>
bool eq(T x, T y) {
  return x == y;
}
template <class T>
T select(bool mask, T x, T y) {
  return mask ? x : y;
}

/// IEEE 754-2019 minimum: NaN if either is, -0 below +0.
template <class T>
T minimum(T x, T y) {
  if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<T>::quiet_NaN();
  if (x == y) return std::signbit(x) ? x : y;
  return x < y ? x : y;
}

/// IEEE 754-2019 maximum: NaN if either is, -0 below +0.
template <class T>
T maximum(T x, T y) {
  return -minimum(-x, -y);
}

}  // namespace srjit::real
