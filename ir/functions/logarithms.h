// log, log2, log10 and log1p as programs.
//
// x = 2^n m with m between 2/3 and 4/3, so that log x = n log 2 + log m. With f = m - 1, which is exact, log m is f -
// f^2 / 2, whose rounding error is added to the tail, and f^3 times a polynomial.
#pragma once

#include <limits>

#include "ir/functions/polynomials.h"
#include "ir/functions/steps.h"

namespace srjit::functions {

/// m of x = 2^n m, and n or a multiple of it.
template <class T>
struct Parts {
  T n, m;
};

/// The upper word of 2/3.
template <Precision kPrecision>
constexpr std::int32_t kTwoThirds = choose<kPrecision>(0x3f2aaaab, 0x3fe55555);

/// n 2^kUpperFractionBits, where m is at least the number whose upper word is kLeast.
template <Precision kPrecision, std::int32_t kLeast = kTwoThirds<kPrecision>, class T>
auto exponentOf(const T& x) {
  using namespace real;
  return (upperWord(x) - kLeast) & Format<kPrecision>::kUpperOthers;
}

/// The parts of x > 0, which is not subnormal. Where `is_scaled`, n is the exponent less `scale`. The result is n *
/// unit, which is exact if the product of the unit and kOffset + scale is.
template <Precision kPrecision, std::int32_t kLeast = kTwoThirds<kPrecision>, class T, class Mask>
Parts<T> partsOf(const T& x, const Mask& is_scaled, int scale, double unit = 1) {
  using namespace real;
  const auto exponent = exponentOf<kPrecision, kLeast>(x);
  const auto m = upperWord(x) - exponent;
  // kOffset is so small that the upper word of kOffset + n has n in the middle.
  constexpr double kOffset = choose<kPrecision>(384, 3072);
  const auto sum = shiftRight(exponent, choose<kPrecision>(8, 11)) + choose<kPrecision>(0x43c00000, 0x40a80000);
  const T offset = select(is_scaled, T(-(kOffset + scale) * unit), T(-kOffset * unit));
  return {fma(withWords(x, sum, 0), T(unit), offset), withWords(x, m, lowerWord(x))};
}

/// The parts of a number that may be subnormal.
template <Precision kPrecision, std::int32_t kLeast = kTwoThirds<kPrecision>, class T>
Parts<T> partsOf(const T& x, double unit = 1) {
  using namespace real;
  constexpr int kScale = 64;
  const auto is_tiny = lt(x, T(Format<kPrecision>::kSmallestNormal));
  return partsOf<kPrecision, kLeast>(select(is_tiny, x * T(0x1p64), x), is_tiny, kScale, unit);
}

/// log(1 + f), |f| <= 1/3.
template <Precision kPrecision, class T>
Sum<T> logOfReduced(const T& f) {
  using namespace real;
  const T half = f * T(-0.5);
  const T head = fma(half, f, f);
  const T rounding = fma(half, f, f - head);
  const T q = polynomial(choose<kPrecision, std::span<const double>>(kLog32, kLog64), f);
  const T square = f * f;
  return {head, fma(square, f * q, rounding)};
}

/// n log 2 + log m. The products of n and log2_high are exact.
template <class T>
T sumOf(const T& n, double log2_high, double log2_low, const Sum<T>& log_of_m) {
  using namespace real;
  const Sum<T> sum = fastSum(n * T(log2_high), log_of_m.head);
  return sum.head + (sum.tail + fma(n, T(log2_low), log_of_m.tail));
}

/// `result`, but `at_least` where x is `least`, NaN below, and x itself where it is infinite or NaN.
template <class T>
T withEnds(const T& x, double least, double at_least, const T& result) {
  using namespace real;
  const T above = select(lt(T(least), x), result, T(std::numeric_limits<double>::quiet_NaN()));
  const T inside = select(eq(x, T(least)), T(at_least), above);
  return select(eq(x, T(std::numeric_limits<double>::infinity())), x, inside);
}
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

/// The logarithm to the base 2.
template <Precision kPrecision, class T>
T log2(const T& x) {
  const Parts<T> parts = partsOf<kPrecision>(x);
  const Sum<T> log_of_m =
      product(logOfReduced<kPrecision>(parts.m - T(1)), choose<kPrecision>(kLog2OfEHigh32, kLog2OfEHigh64),
              choose<kPrecision>(kLog2OfELow32, kLog2OfELow64));
  const Sum<T> sum = fastSum(parts.n, log_of_m.head);
  return withEnds(x, 0, kMinusInfinity, sum.head + (sum.tail + log_of_m.tail));
}

/// The natural logarithm.
template <Precision kPrecision, class T>
T log(const T& x) {
  const Parts<T> parts = partsOf<kPrecision>(x);
  return withEnds(x, 0, kMinusInfinity,
                  sumOf(parts.n, choose<kPrecision>(kShortLn2High32, kShortLn2High64),
                        choose<kPrecision>(kShortLn2Low32, kShortLn2Low64), logOfReduced<kPrecision>(parts.m - T(1))));
}

/// The logarithm to the base 10.
template <Precision kPrecision, class T>
T log10(const T& x) {
  const Parts<T> parts = partsOf<kPrecision>(x);
  return withEnds(
      x, 0, kMinusInfinity,
      sumOf(parts.n, choose<kPrecision>(kShortLog10Of2High32, kShortLog10Of2High64),
            choose<kPrecision>(kShortLog10Of2Low32, kShortLog10Of2Low64),
            product(logOfReduced<kPrecision>(parts.m - T(1)), choose<kPrecision>(kLog10OfEHigh32, kLog10OfEHigh64),
                    choose<kPrecision>(kLog10OfELow32, kLog10OfELow64))));
}

/// An argument x of a logarithm of 1 + x that may be so large that the 1 does not count. Then it is scaled, so that the
/// powers of two of the logarithm are in the format's range.
template <class T, class Mask>
struct ScaledArgument {
  Mask is_scaled;
  T scaled;  ///< x 2^kScaleOfLarge
};
template <Precision kPrecision>
inline constexpr int kScaleOfLarge = choose<kPrecision>(-30, -300);
template <Precision kPrecision, class T>
auto scaledArgument(const T& x) {
  using namespace real;
  const auto is_scaled = lt(T(choose<kPrecision>(0x1p60, 0x1p400)), x);
  return ScaledArgument<T, decltype(is_scaled)>{is_scaled, x * T(choose<kPrecision>(0x1p-30, 0x1p-300))};
}

/// log(1 + y); or log(2^doublings x) where x is scaled. Where n = 0, f is y itself. Elsewhere f is that of the rounded
/// sum u = 1 + y, and its error is added: to first order log(u + error) = log u + error / u, and 1 / m is 1 - f to the
/// accuracy that the error needs.
template <Precision kPrecision, class T, class Mask>
T logOfOnePlus(const Sum<T>& y, const ScaledArgument<T, Mask>& x, int doublings) {
  using namespace real;
  constexpr std::int32_t kOne = Format<kPrecision>::kBias << Format<kPrecision>::kUpperFractionBits;
  const T head = select(x.is_scaled, x.scaled, y.head);
  const Sum<T> sum = exactSum(T(1), head);
  const T tail = select(x.is_scaled, T(0), y.tail);
  const T error = sum.tail + tail;
  const T u = sum.head;
  const Parts<T> parts = partsOf<kPrecision>(u, x.is_scaled, kScaleOfLarge<kPrecision> - doublings);
  const T down = withWords(u, decltype(upperWord(u))(kOne) - exponentOf<kPrecision>(u), 0);
  const auto is_near = eq(parts.n, T(0));
  const T f = select(is_near, head, parts.m - T(1));
  const T left = select(is_near, tail, error * down);
  Sum<T> log_of_m = logOfReduced<kPrecision>(f);
  log_of_m.tail = log_of_m.tail + fma(-left, f, left);
  return sumOf(parts.n, choose<kPrecision>(kShortLn2High32, kShortLn2High64),
               choose<kPrecision>(kShortLn2Low32, kShortLn2Low64), log_of_m);
}

/// log(1 + x).
template <Precision kPrecision, class T>
T log1p(const T& x) {
  using namespace real;
  const T result = logOfOnePlus<kPrecision>(Sum<T>{x, T(0)}, scaledArgument<kPrecision>(x), 0);
  return withEnds(x, -1, kMinusInfinity, copysign(result, x));  // the sign of a zero
}

}  // namespace srjit::functions
