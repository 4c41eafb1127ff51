// sin, cos and tan as programs.
//
// x = n pi / 2 + r. Up to `kMostUsual` pi / 2 is a sum of three numbers (W. Cody and W. Waite, "Software Manual for the
// Elementary Functions", 1980): the difference x - n A is exact, and that to n B has a tail. Larger arguments are
// multiplied by the bits of 1 / (2 pi) that count (M. Payne and R. Hanek, "Radian reduction for trigonometric
// functions", ACM SIGNUM Newsletter 18(1), 1983), as a sum of numbers: those bits before which the product is a
// multiple of whole turns are left out.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "ir/functions/polynomials.h"
#include "ir/functions/quotients.h"

namespace srjit::functions {

/// The distance of x to the nearest integer.
template <class T>
T fraction(const T& x) {
  using namespace real;
  return x - rint(x);
}

template <Precision kPrecision>
inline constexpr double kMostUsual = choose<kPrecision>(0x1p16, 0x1p30);

/// |x| <= kMostUsual.
template <Precision kPrecision, class T>
Reduced<T> reduceUsualAngle(const T& x) {
  using namespace real;
  constexpr double kRounder = Format<kPrecision>::kRounder;
  const T power = fma(x, T(choose<kPrecision>(kTwoOverPiHigh32, kTwoOverPiHigh64)), T(kRounder));
  const T minus_n = T(kRounder) - power;
  const T first = fma(minus_n, T(choose<kPrecision>(kHalfOfPiHigh32, kHalfOfPiHigh64)), x);
  const T second = minus_n * T(choose<kPrecision>(kHalfOfPiLow32, kHalfOfPiLow64));
  const T error = fma(minus_n, T(choose<kPrecision>(kHalfOfPiLow32, kHalfOfPiLow64)), -second);
  const Sum<T> sum = exactSum(first, second);
  return {power, {sum.head, fma(minus_n, T(choose<kPrecision>(kHalfOfPiRest32, kHalfOfPiRest64)), sum.tail + error)}};
}

/// 2^exponent, a normal number of f64: without a call, since a GPU has no library for it.
constexpr double twoTo(int exponent) {
  using F64 = Format<Precision::kF64>;
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + F64::kBias) << F64::kFractionBits);
}

/// What `make` gives for 0 to count - 1, in this order.
template <std::size_t count, class Make>
auto arrayOf(const Make& make) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    return std::array{make(i)...};
  }(std::make_index_sequence<count>());
}

/// |x| > kMostUsual. y = x 2^(-kTurnBits w) is in (kMostUsual, kMostUsual 2^kTurnBits] for some w, and the numbers of
/// kTurns from w on count, where number i has the weight 2^(-kTurnBits i): the products of earlier ones and x are
/// whole turns. Of the products and their errors, the first ones may have whole turns, which are dropped. All sums are
/// exact, except those of the last three terms.
template <Precision kPrecision, class T>
Reduced<T> reduceLargeAngle(const T& x) {
  using namespace real;
  constexpr int kTurnBits = Format<kPrecision>::kFractionBits + 1;
  constexpr int kUsed = 5;
  constexpr std::span<const double> kTurns = choose<kPrecision, std::span<const double>>(kTurns32, kTurns64);
  constexpr int kCount = static_cast<int>(kTurns.size());
  const auto at = [](int i) { return static_cast<std::size_t>(i); };

  // The bits of w, from the highest on.
  auto turns = arrayOf<kCount>([&](std::size_t i) { return T(kTurns[i]); });
  T y = x;
  for (int step = static_cast<int>(std::bit_floor(at(kCount - kUsed))); step > 0; step /= 2) {
    const auto is_beyond = lt(T(kMostUsual<kPrecision> * twoTo(kTurnBits * step)), abs(y));
    y = select(is_beyond, y * T(twoTo(-kTurnBits * step)), y);
    for (int i = 0; i < std::min(kUsed + step - 1, kCount - step); ++i) {
      turns[at(i)] = select(is_beyond, turns[at(i + step)], turns[at(i)]);
    }
  }

  const auto products = arrayOf<kUsed>([&](std::size_t i) {
    const T factor = y * T(twoTo(-kTurnBits * static_cast<int>(i)));
    const T product = factor * turns[i];
    return Sum<T>{product, fma(factor, turns[i], -product)};
  });
  const T of_first = fraction(products[0].head);
  const T of_error = fraction(products[0].tail);
  const T of_second = fraction(products[1].head);
  const Sum<T> high1 = exactSum(fraction(of_first + of_error), of_second);
  const Sum<T> high2 = exactSum(high1.head, products[1].tail);
  const Sum<T> high3 = exactSum(high2.head, products[2].head);
  const Sum<T> low1 = exactSum(high1.tail, high2.tail);
  const Sum<T> low2 = exactSum(low1.head, high3.tail);
  const Sum<T> low3 = exactSum(low2.head, products[2].tail);
  const Sum<T> low4 = exactSum(low3.head, products[3].head);
  const T last = products[3].tail + products[4].head;
  const T rest = (((last + low1.tail) + low2.tail) + low3.tail) + low4.tail;

  constexpr double kRounder = Format<kPrecision>::kRounder;
  const T power = fma(high3.head, T(4), T(kRounder));
  const T n = power - T(kRounder);
  const Sum<T> turn = exactSum(fma(n, T(-0.25), high3.head), low4.head);
  const Sum<T> all = {turn.head, turn.tail + rest};
  return {power,
          product(all, choose<kPrecision>(kTwoPiHigh32, kTwoPiHigh64), choose<kPrecision>(kTwoPiLow32, kTwoPiLow64))};
}

template <Precision kPrecision, class T>
Reduced<T> reduceAngle(const T& x) {
  using namespace real;
  const Reduced<T> usual = reduceUsualAngle<kPrecision>(x);
  const auto is_large = lt(T(kMostUsual<kPrecision>), abs(x));
  const auto ofLarge = [&] {
    const Reduced<T> large = reduceLargeAngle<kPrecision>(x);
    return std::array<T, 3>{large.power, large.r.head, large.r.tail};
  };
  const std::array<T, 3> angle = rarely(is_large, std::array<T, 3>{usual.power, usual.r.head, usual.r.tail}, ofLarge);
  return {angle[0], {angle[1], angle[2]}};
}

/// |r| <= pi / 4 and a little.
template <Precision kPrecision, class T>
Sum<T> sineOfReduced(const Sum<T>& r) {
  using namespace real;
  const T square = r.head * r.head;
  const T q = polynomial(choose<kPrecision, std::span<const double>>(kSine32, kSine64), square);
  const T tail = fma(square * T(-0.5), r.tail, r.tail);
  return {r.head, fma(r.head * square, q, tail)};
}
template <Precision kPrecision, class T>
Sum<T> cosineOfReduced(const Sum<T>& r) {
  using namespace real;
  const T square = r.head * r.head;
  const T q = polynomial(choose<kPrecision, std::span<const double>>(kCosine32, kCosine64), square);
  const Sum<T> one = fastSum(T(1), square * T(-0.5));
  const T rounding = fma(r.head, r.head, -square);
  const T lost = fma(rounding, T(-0.5), one.tail);
  const T tail = fma(-r.head, r.tail, lost);
  return {one.head, fma(square * square, q, tail)};
}

/// Whether the integer is odd.
template <Precision kPrecision, class T, class Integer>
auto isOdd(const T& x, const Integer& integer) {
  using namespace real;
  constexpr std::int32_t kOne = Format<kPrecision>::kBias << Format<kPrecision>::kUpperFractionBits;
  return lt(T(1), withWords(x, (integer & 1) + kOne, 0));
}

/// The sine of r + quadrant pi / 2.
template <Precision kPrecision, class T, class Integer>
T sineInQuadrant(const Sum<T>& r, const Integer& quadrant) {
  using namespace real;
  const Sum<T> sine = sineOfReduced<kPrecision>(r);
  const Sum<T> cosine = cosineOfReduced<kPrecision>(r);
  const T even = sine.head + sine.tail;
  const T odd = cosine.head + cosine.tail;
  const T value = select(isOdd<kPrecision>(odd, quadrant), odd, even);
  // The sign changes in every second quadrant: adding to the sign's bit inverts it.
  const auto sign = shiftLeft(quadrant, 30) & std::numeric_limits<std::int32_t>::min();
  return withWords(value, upperWord(value) + sign, lowerWord(value));
}

template <Precision kPrecision, class T>
T sin(const T& x) {
  using namespace real;
  const Reduced<T> angle = reduceAngle<kPrecision>(x);
  const T result = sineInQuadrant<kPrecision>(angle.r, lowerWord(angle.power));
  return select(lt(abs(x), T(kTiny<kPrecision>)), x, result);
}

template <Precision kPrecision, class T>
T cos(const T& x) {
  using namespace real;
  const Reduced<T> angle = reduceAngle<kPrecision>(x);
  return sineInQuadrant<kPrecision>(angle.r, lowerWord(angle.power) + 1);
}

/// The sine over the cosine, or minus the cosine over the sine.
template <Precision kPrecision, class T>
T tan(const T& x) {
  using namespace real;
  const Reduced<T> angle = reduceAngle<kPrecision>(x);
  const Sum<T> sine = sineOfReduced<kPrecision>(angle.r);
  const Sum<T> cosine = cosineOfReduced<kPrecision>(angle.r);
  const auto is_odd = isOdd<kPrecision>(x, lowerWord(angle.power));
  const Sum<T> sines = fastSum(sine.head, sine.tail);
  const Sum<T> cosines = fastSum(cosine.head, cosine.tail);
  const Sum<T> minus_cosines = {-cosines.head, -cosines.tail};
  const Sum<T> numerator = selectSum(is_odd, minus_cosines, sines);
  const Sum<T> denominator = selectSum(is_odd, sines, cosines);
  const Sum<T> q = quotient<kPrecision>(numerator, denominator);
  return select(lt(abs(x), T(kTiny<kPrecision>)), x, q.head + q.tail);
}

}  // namespace srjit::functions
