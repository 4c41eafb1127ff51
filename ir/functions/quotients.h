// Reciprocals and quotients for programs, without the scaling that a correctly rounded division needs; and mod as a
// program.
#pragma once

#include <array>
#include <limits>

#include "ir/functions/logarithms.h"
#include "ir/functions/steps.h"

namespace srjit::functions {

/// 1 / y with a relative error below 2^-12, for a positive y that is not near the ends of the format's range. An
/// integer minus the word of y is the word of about 1 / y, since words are nearly logarithms (J. Blinn, "Floating-point
/// tricks", IEEE Computer Graphics and Applications 17(4), 1997); the best integer has an error of 0.0506, and one
/// iteration of order 3 follows.
template <Precision kPrecision, class T>
T roughReciprocal(const T& y) {
  using namespace real;
  const T guess = withWords(y, decltype(upperWord(y))(choose<kPrecision>(0x7ef3126f, 0x7fde624e)) - upperWord(y), 0);
  const T error = fma(-guess, y, T(1));
  const T correction = fma(error, error, error);
  return fma(guess, correction, guess);
}

/// The same with an error of about 1 ulp.
template <Precision kPrecision, class T>
T reciprocal(const T& y) {
  using namespace real;
  T result = roughReciprocal<kPrecision>(y);
  for (int i = 0; i < choose<kPrecision>(1, 3); ++i) {
    const T error = fma(-result, y, T(1));
    result = fma(result, error, result);
  }
  return result;
}

/// x / y for numbers y as those of reciprocal(), and small tails.
template <Precision kPrecision, class T>
Sum<T> quotient(const Sum<T>& x, const Sum<T>& y) {
  using namespace real;
  const T inverse = reciprocal<kPrecision>(y.head);
  const T head = x.head * inverse;
  const T rest = fma(-head, y.head, x.head) + x.tail;
  const T whole_rest = fma(-head, y.tail, rest);
  return {head, whole_rest * inverse};
}

/// The square root of x >= 0, with a tail that is half of the rest over the root; `error` is that of x. Numbers that
/// are not 0 are at least `least` squared.
template <Precision kPrecision, class T>
Sum<T> rootOf(const T& x, const T& error, double least) {
  using namespace real;
  const T head = sqrt(x);
  const T rest = fma(-head, head, x) + error;
  const T inverse = roughReciprocal<kPrecision>(atLeast(head, least));
  return {head, (rest * T(0.5)) * inverse};
}

// mod.
// The remainder of the magnitudes is exact (ISO C, fmod): it is a multiple of the smaller last place of both, and less
// than the divisor. If the quotient is an integer of the format, it takes one quotient and one fused step. A larger
// quotient is made of several digits, each with a fused step, as in a long division: with x = 2^n m and y = 2^k d, the
// remainder is 2^k times that of 2^(n - k) m and d.

/// The bits of a digit: enough that kRounder rounds a digit, and few enough that errors of the quotient, below 2^-22
/// (f64: 2^-51) of it, leave rests below 0.9 d, which are exact.
template <Precision kPrecision>
inline constexpr int kDigitBits = choose<kPrecision>(20, 50);

/// The remainder of x >= 0 and y >= 0 for a quotient of any size; NaN for y = 0 and for an infinite x. x is not
/// subnormal.
template <Precision kPrecision, class T>
T remainderOfLarge(const T& x, const T& y) {
  using namespace real;
  using F = Format<kPrecision>;
  constexpr std::int32_t kOne = F::kBias << F::kUpperFractionBits;
  constexpr int kBits = kDigitBits<kPrecision>;
  constexpr double kDigit = static_cast<double>(std::int64_t{1} << kBits);
  constexpr int kMostBits = 2 * F::kBias - 1 + F::kFractionBits;  // n - k of the largest and the smallest number
  const Parts<T> of_x = partsOf<kPrecision, kOne>(x);
  const Parts<T> of_y = partsOf<kPrecision, kOne>(y);
  const T inverse = reciprocal<kPrecision>(of_y.m);
  const auto rest = [&](const T& number) {
    const T digit = fma(number, inverse, T(F::kRounder)) - T(F::kRounder);
    return fma(-digit, of_y.m, number);
  };
  // The first digit has what the others leave of the exponent. Half a bit more: the quotient is rounded.
  const T exponent = of_x.n - of_y.n;
  const T digits = floor((exponent + T(0.5)) * T(1.0 / kBits));
  const T bits = fma(digits, T(-kBits), exponent) + T(F::kRounder + F::kBias);
  T remainder = rest(of_x.m * withWords(x, shiftLeft(lowerWord(bits), F::kUpperFractionBits), 0));
  for (int i = 0; i < kMostBits / kBits; ++i) {
    const T next = rest(remainder * T(kDigit));
    remainder = select(lt(T(i), digits), next, remainder);
  }
  const T of_parts = select(lt(remainder, T(0)), remainder + of_y.m, remainder);
  const T result = timesPower<kPrecision>(of_parts, of_y.n + T(F::kRounder + 2 * F::kBias));
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const T of_finite = select(lt(x, T(std::numeric_limits<double>::infinity())), result, T(kNone));
  return select(lt(T(0), y), of_finite, T(kNone));
}

/// The remainder of |x| and |y|, with the sign of y; |y| less that remainder if the signs of x and y differ and it is
/// not 0, rounded once. A quotient that is rounded up to an integer gives a negative rest.
template <Precision kPrecision, class T>
T mod(const T& x, const T& y) {
  using namespace real;
  constexpr double kMostUsual = 2 / std::numeric_limits<NumberTypeOf<kPrecision>>::epsilon();
  const T a = abs(x);
  const T b = abs(y);
  const T quotient = a / b;
  const T rest = fma(-floor(quotient), b, a);
  const T usual = select(lt(rest, T(0)), rest + b, rest);
  const auto ofLarge = [&] { return std::array<T, 1>{remainderOfLarge<kPrecision>(a, b)}; };
  const std::array<T, 1> of_any = rarely(lt(T(kMostUsual), quotient), std::array<T, 1>{usual}, ofLarge);
  const T remainder = select(lt(a, b), a, of_any[0]);  // b may be infinite
  const T of_signs = select(eq(copysign(y, x), y), remainder, b - remainder);
  return copysign(select(eq(remainder, T(0)), remainder, of_signs), y);
}

}  // namespace srjit::functions
