// asin, acos, atan and atan2 as programs. An angle is a multiple of a quarter of pi plus or minus a small angle, whose
// polynomial converges quickly.
#pragma once

#include "ir/functions/polynomials.h"
#include "ir/functions/quotients.h"

namespace srjit::functions {

/// Multiples of a quarter of pi as sums.
template <Precision kPrecision, class T>
Sum<T> quarterOfPi() {
  return {T(choose<kPrecision>(kQuarterOfPiHigh32, kQuarterOfPiHigh64)),
          T(choose<kPrecision>(kQuarterOfPiLow32, kQuarterOfPiLow64))};
}
template <Precision kPrecision, class T>
Sum<T> halfOfPi() {
  return {T(choose<kPrecision>(kHalfOfPiHigh32, kHalfOfPiHigh64)),
          T(choose<kPrecision>(kHalfOfPiLow32, kHalfOfPiLow64))};
}
template <Precision kPrecision, class T>
Sum<T> threeQuartersOfPi() {
  return {T(choose<kPrecision>(kThreeQuartersOfPiHigh32, kThreeQuartersOfPiHigh64)),
          T(choose<kPrecision>(kThreeQuartersOfPiLow32, kThreeQuartersOfPiLow64))};
}
template <Precision kPrecision, class T>
Sum<T> wholePi() {
  return {T(choose<kPrecision>(kPiHigh32, kPiHigh64)), T(choose<kPrecision>(kPiLow32, kPiLow64))};
}

/// The angle with the signs of `sign`.
template <class T>
Sum<T> withSign(const Sum<T>& angle, const T& sign) {
  using namespace real;
  // The tail has a sign of its own.
  const T factor = copysign(T(1), sign);
  const T head = angle.head * factor;
  return {head, angle.tail * factor};
}

/// The rounded sum of a multiple of a quarter of pi and a smaller angle.
template <class T>
T sumOfAngles(const Sum<T>& multiple, const Sum<T>& angle) {
  const Sum<T> sum = fastSum(multiple.head, angle.head);
  return sum.head + (sum.tail + (multiple.tail + angle.tail));
}

/// An angle that a program reduces, and whether its argument is above 1/2.
template <class T, class Mask>
struct Arc {
  Sum<T> angle;
  Mask is_above;
};

/// asin x for x up to 1/2; asin of the root of (1 - x) / 2 above, which is acos x / 2.
template <Precision kPrecision, class T>
auto arcSineOf(const T& magnitude) {
  using namespace real;
  const auto is_above = lt(T(0.5), magnitude);
  const T half = fma(magnitude, T(-0.5), T(0.5));
  const Sum<T> root = rootOf<kPrecision>(half, T(0), choose<kPrecision>(0x1p-20, 0x1p-40));
  const T square = select(is_above, half, magnitude * magnitude);
  const Sum<T> x = selectSum(is_above, root, Sum<T>{magnitude, T(0)});
  const T q = polynomial(choose<kPrecision, std::span<const double>>(kAsin32, kAsin64), square);
  const Sum<T> angle = {x.head, fma(x.head * square, q, x.tail)};
  return Arc<T, decltype(is_above)>{angle, is_above};
}

template <Precision kPrecision, class T>
T asin(const T& x) {
  using namespace real;
  const auto arc = arcSineOf<kPrecision>(abs(x));
  const T below = arc.angle.head + arc.angle.tail;
  const T minus_two = T(-2);
  const Sum<T> minus_twice = {arc.angle.head * minus_two, arc.angle.tail * minus_two};
  const T above = sumOfAngles(halfOfPi<kPrecision, T>(), minus_twice);
  return copysign(select(arc.is_above, above, below), x);
}

/// Half of pi minus asin x, or twice the angle, or pi minus it.
template <Precision kPrecision, class T>
T acos(const T& x) {
  using namespace real;
  const auto arc = arcSineOf<kPrecision>(abs(x));
  const T head = select(arc.is_above, arc.angle.head + arc.angle.head, arc.angle.head);
  const T tail = select(arc.is_above, arc.angle.tail + arc.angle.tail, arc.angle.tail);
  const T sign = select(arc.is_above, x, -x);
  const auto is_negative = lt(x, T(0));
  const Sum<T> of_above = selectSum(is_negative, wholePi<kPrecision, T>(), Sum<T>{T(0), T(0)});
  const Sum<T> multiple = selectSum(arc.is_above, of_above, halfOfPi<kPrecision, T>());
  return sumOfAngles(multiple, withSign(Sum<T>{head, tail}, sign));
}

/// Whether the quotient of two numbers, 0 <= low <= high, is above 1/2; and the angle of the point (high, low), from
/// which a quarter of pi is subtracted if so: then its tangent is (low - high) / (low + high).
template <Precision kPrecision, class T>
auto arcTangentOf(const T& low, const T& high) {
  using namespace real;
  const auto is_above = lt(high, low + low);
  const T numerator = select(is_above, low - high, low);
  const Sum<T> sum = fastSum(high, low);
  const Sum<T> denominator = selectSum(is_above, sum, Sum<T>{high, T(0)});
  const Sum<T> x = quotient<kPrecision>(Sum<T>{numerator, T(0)}, denominator);
  const T square = x.head * x.head;
  const T q = polynomial(choose<kPrecision, std::span<const double>>(kAtan32, kAtan64), square);
  const T tail = fma(-square, x.tail, x.tail);  // the derivative is about 1 - x^2
  const Sum<T> angle = {x.head, fma(x.head * square, q, tail)};
  return Arc<T, decltype(is_above)>{angle, is_above};
}

/// atan x = pi / 2 - atan(1 / x).
template <Precision kPrecision, class T>
T atan(const T& x) {
  using namespace real;
  const T magnitude = abs(x);
  const auto is_steep = lt(T(1), magnitude);
  const T low = select(is_steep, T(1), magnitude);
  const T high = select(is_steep, atMost(magnitude, choose<kPrecision>(0x1p60, 0x1p100)), T(1));
  const auto arc = arcTangentOf<kPrecision>(low, high);
  const Sum<T> of_below = selectSum(is_steep, halfOfPi<kPrecision, T>(), Sum<T>{T(0), T(0)});
  const Sum<T> multiple = selectSum(arc.is_above, quarterOfPi<kPrecision, T>(), of_below);
  const T sign = select(is_steep, T(-1), T(1));
  const T result = sumOfAngles(multiple, withSign(arc.angle, sign));
  return copysign(result, x);
}

/// The angle of the point (x, y), with the exceptional values of ISO C, F.10.1.4. Coordinates are scaled where the
/// larger one is near the ends of the format's range; one that becomes 0 thereby does not count, except where the angle
/// is the quotient y / x.
template <Precision kPrecision, class T>
T atan2(const T& y, const T& x) {
  using namespace real;
  const T width = abs(x), height = abs(y);
  const auto is_steep = lt(width, height);
  const T low = select(is_steep, width, height);
  const T high = select(is_steep, height, width);
  const T of_large =
      select(lt(T(choose<kPrecision>(0x1p60, 0x1p500)), high), T(choose<kPrecision>(0x1p-70, 0x1p-600)), T(1));
  const T scale =
      select(lt(high, T(choose<kPrecision>(0x1p-60, 0x1p-500))), T(choose<kPrecision>(0x1p70, 0x1p600)), of_large);
  // Infinite coordinates become so large that no other one changes the angle (2^86 times in f64), and zeros stay zeros.
  constexpr double kLeast = choose<kPrecision>(0x1p-80, 0x1p-510), kMost = choose<kPrecision>(0x1p100, 0x1p510);
  const T scaled_low = atMost(low * scale, kMost);
  const T scaled_high = atMost(atLeast(high * scale, kLeast), kMost);
  const auto arc = arcTangentOf<kPrecision>(scaled_low, scaled_high);
  const auto is_left = lt(copysign(T(1), x), T(0));
  const Sum<T> of_flat = selectSum(is_left, wholePi<kPrecision, T>(), Sum<T>{T(0), T(0)});
  const Sum<T> of_below = selectSum(is_steep, halfOfPi<kPrecision, T>(), of_flat);
  const Sum<T> of_above = selectSum(is_left, threeQuartersOfPi<kPrecision, T>(), quarterOfPi<kPrecision, T>());
  const Sum<T> multiple = selectSum(arc.is_above, of_above, of_below);
  const T of_steep = select(is_steep, T(-1), T(1));
  const T sign = copysign(T(1), x) * of_steep;
  const T angle = sumOfAngles(multiple, withSign(arc.angle, sign));
  const auto is_quotient = lt(height, x * T(choose<kPrecision>(0x1p-30, 0x1p-60)));
  return copysign(select(is_quotient, height / width, angle), y);
}

}  // namespace srjit::functions
