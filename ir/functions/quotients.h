// Reciprocals and quotients for programs: without the scaling that a correctly rounded division needs.
#pragma once

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

}  // namespace srjit::functions
