// sinh, cosh, tanh and their inverses as programs.
//
// x = n ln 2 + r as in exponentials.h. With s = 2^n and t = 2^-n
//     2 sinh x = (s - t) cosh r + (s + t) sinh r,    2 cosh x = (s + t) cosh r + (s - t) sinh r,
// which loses nothing for small x, where s = t. The inverse functions are logarithms of 1 + y.
#pragma once

#include <limits>

#include "ir/functions/exponentials.h"
#include "ir/functions/logarithms.h"
#include "ir/functions/quotients.h"

namespace srjit::functions {

/// sinh x and cosh x, both times the same power of two; the tails are at most an eighth of the heads.
template <class T>
struct HyperbolicParts {
  Sum<T> sinh, cosh;
};

/// For x from 0 to `most`, beyond which it counts as that number; the power of two is 2^(1 - kShift).
template <Precision kPrecision, int kShift, class T>
HyperbolicParts<T> hyperbolicParts(const T& x, double most) {
  using namespace real;
  using F = Format<kPrecision>;
  const T inside = atMost(x, most);
  const Reduced<T> e = reduceExponent<kPrecision>(inside);
  const auto exponent = shiftLeft(lowerWord(e.power), F::kUpperFractionBits);
  const T s = withWords(x, exponent - ((F::kBias + kShift) << F::kUpperFractionBits), 0);
  // A t that is out of the format's range does not count.
  constexpr std::int32_t kThreeBiases = (3 * F::kBias - kShift) << F::kUpperFractionBits;
  const T inverse = withWords(x, decltype(exponent)(kThreeBiases) - exponent, 0);
  const T t = select(lt(inside, T(choose<kPrecision>(20.0, 40.0))), inverse, T(0));
  const Sum<T> sum = fastSum(s, t), difference = fastSum(s, -t);

  const T r = e.r.head + e.r.tail;
  const T square = r * r;
  const T cosh_q = polynomial(choose<kPrecision, std::span<const double>>(kCosh32, kCosh64), square);
  const T sinh_q = polynomial(choose<kPrecision, std::span<const double>>(kSinh32, kSinh64), square);
  const T cosh_tail = square * cosh_q;
  const T sinh_tail = fma(r * square, sinh_q, e.r.tail);

  const auto combined = [&](const Sum<T>& of_cosh, const Sum<T>& of_sinh) {
    const T head = fma(of_sinh.head, e.r.head, of_cosh.head);
    const T rounding = fma(of_sinh.head, e.r.head, of_cosh.head - head);
    const T lost = fma(of_sinh.tail, e.r.head, rounding + of_cosh.tail);
    return Sum<T>{head, fma(of_cosh.head, cosh_tail, fma(of_sinh.head, sinh_tail, lost))};
  };
  const Sum<T> of_sinh = combined(difference, sum);
  return {of_sinh, combined(sum, difference)};
}

/// sinh and cosh are infinite beyond 89.4157 and 710.4759, and 2^n is 4 times as large as a number can be from n = 130
/// and 1026 on.
template <Precision kPrecision>
inline constexpr double kMostHyperbolic = choose<kPrecision>(89.5, 710.7);

template <Precision kPrecision, class T>
T sinh(const T& x) {
  using namespace real;
  const T magnitude = abs(x);
  const Sum<T> parts = hyperbolicParts<kPrecision, 2>(magnitude, kMostHyperbolic<kPrecision>).sinh;
  const T half = parts.head + parts.tail;
  const T result = copysign(half + half, x);
  return select(lt(magnitude, T(kTiny<kPrecision>)), x, result);
}

template <Precision kPrecision, class T>
T cosh(const T& x) {
  using namespace real;
  const T magnitude = abs(x);
  const Sum<T> parts = hyperbolicParts<kPrecision, 2>(magnitude, kMostHyperbolic<kPrecision>).cosh;
  const T half = parts.head + parts.tail;
  return half + half;
}

/// Beyond the limit it is 1.
template <Precision kPrecision, class T>
T tanh(const T& x) {
  using namespace real;
  const T magnitude = abs(x);
  const HyperbolicParts<T> parts = hyperbolicParts<kPrecision, 1>(magnitude, choose<kPrecision>(10.0, 20.0));
  const Sum<T> numerator = fastSum(parts.sinh.head, parts.sinh.tail);
  const Sum<T> denominator = fastSum(parts.cosh.head, parts.cosh.tail);
  const Sum<T> q = quotient<kPrecision>(numerator, denominator);
  return copysign(q.head + q.tail, x);
}

/// log(x + sqrt(x^2 + 1)), with 1 + y = x + sqrt(x^2 + 1) and y = x + x^2 / (1 + sqrt(x^2 + 1)). Where x is large, log
/// 2x.
template <Precision kPrecision, class T>
T asinh(const T& x) {
  using namespace real;
  const T magnitude = abs(x);
  const T square = magnitude * magnitude;
  const T error = fma(magnitude, magnitude, -square);
  const Sum<T> divisor = fastSum(sqrt(T(1) + square), T(1));
  const Sum<T> added = quotient<kPrecision>(Sum<T>{square, error}, divisor);
  Sum<T> y = fastSum(magnitude, added.head);
  y.tail = y.tail + added.tail;
  const T result = logOfOnePlus<kPrecision>(y, scaledArgument<kPrecision>(magnitude), 1);
  return copysign(withEnds(magnitude, -1, 0, result), x);
}

/// log(x + sqrt(x^2 - 1)), with 1 + y = x + sqrt(x^2 - 1), t = x - 1 and y = t + sqrt(2 t + t^2). Where x is large, log
/// 2x.
template <Precision kPrecision, class T>
T acosh(const T& x) {
  using namespace real;
  const T t = x - T(1);
  const T twice = t + t;
  const T square = fma(t, t, twice);
  const T error = fma(t, t, twice - square);
  const Sum<T> root = rootOf<kPrecision>(square, error, choose<kPrecision>(0x1p-20, 0x1p-40));
  const Sum<T> sum = fastSum(root.head, t);
  const Sum<T> y = {sum.head, sum.tail + root.tail};
  return withEnds(x, 1, 0, logOfOnePlus<kPrecision>(y, scaledArgument<kPrecision>(x), 1));
}

/// log((1 + x) / (1 - x)) / 2, with y = 2 x / (1 - x).
template <Precision kPrecision, class T>
T atanh(const T& x) {
  using namespace real;
  const T magnitude = abs(x);
  const Sum<T> divisor = fastSum(T(1), -magnitude);
  const Sum<T> y = quotient<kPrecision>(Sum<T>{magnitude + magnitude, T(0)}, divisor);
  const T half = T(0.5) * logOfOnePlus<kPrecision>(y, scaledArgument<kPrecision>(magnitude), 0);
  const T end = select(eq(magnitude, T(1)), T(std::numeric_limits<double>::infinity()),
                       T(std::numeric_limits<double>::quiet_NaN()));
  return copysign(select(lt(magnitude, T(1)), half, end), x);
}

}  // namespace srjit::functions
