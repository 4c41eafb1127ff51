// Steps that the programs of elementary functions share. A program is generic in the domain T of its numbers
// (ir/functions/domain.def) and has one form per precision. All its operations have results that IEEE 754 or integer
// arithmetic fixes, so it gives the same bits in every domain. No call has two operands that are calls: a compiler may
// evaluate operands in any order, and a domain emits instructions in that order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ir/numeric.h"
#include "ir/real.h"

namespace srjit::functions {

/// The value for the precision.
template <Precision kPrecision, class Value>
constexpr Value choose(const Value& of_f32, const Value& of_f64) {
  switch (kPrecision) {
    case Precision::kF32:
      return of_f32;
    case Precision::kF64:
      return of_f64;
  }
  __builtin_unreachable();
}

/// The layout of numbers (IEEE 754-2019, 3.4). The upper word has the sign, the exponent and the first bits of the
/// fraction; in f32 it is the whole number.
template <Precision kPrecision>
struct Format {
  static constexpr int kFractionBits = choose<kPrecision>(23, 52);
  static constexpr int kUpperFractionBits = choose<kPrecision>(23, 20);
  static constexpr std::int32_t kBias = choose<kPrecision>(127, 1023);
  static constexpr double kSmallestNormal = choose<kPrecision>(0x1p-126, 0x1p-1022);
  /// x + kRounder is x rounded to an integer and kRounder: the integer is in the low bits of the sum's lower word.
  static constexpr double kRounder = choose<kPrecision>(0x1.8p23, 0x1.8p52);
  /// The upper word of a number without its sign and exponent, and without its fraction.
  static constexpr std::int32_t kUpperFraction = (std::int32_t{1} << kUpperFractionBits) - 1;
  static constexpr std::int32_t kUpperOthers = ~kUpperFraction;
};

/// A number as the sum of two: `tail` is small beside `head`, unless a function says otherwise, or both are zero.
template <class T>
struct Sum {
  T head, tail;
};

/// An argument less n times a constant: n is in the low bits of the lower word of `power`.
template <class T>
struct Reduced {
  T power;
  Sum<T> r;
};

/// The polynomial with these coefficients, from the lowest on, at x, by Horner's rule with fused steps.
template <class T>
T polynomial(std::span<const double> coefficients, const T& x) {
  using namespace real;
  T sum = T(coefficients.back());
  for (std::size_t i = coefficients.size() - 1; i-- > 0;) sum = fma(sum, x, T(coefficients[i]));
  return sum;
}

/// The rounded sum x + y and its error, for |x| >= |y| or x = 0 (T. Dekker, "A floating-point technique for extending
/// the available precision", Numerische Mathematik 18, 1971).
template <class T>
Sum<T> fastSum(const T& x, const T& y) {
  const T head = x + y;
  return {head, (x - head) + y};
}

/// The rounded sum x + y and its error, in any order (D. Knuth, "The Art of Computer Programming" 2, 4.2.2, theorem B).
template <class T>
Sum<T> exactSum(const T& x, const T& y) {
  const T head = x + y;
  const T y_part = head - x;
  const T x_part = head - y_part;
  const T y_error = y - y_part;
  return {head, (x - x_part) + y_error};
}

template <class Mask, class T>
Sum<T> selectSum(const Mask& mask, const Sum<T>& x, const Sum<T>& y) {
  using namespace real;
  const T head = select(mask, x.head, y.head);
  return {head, select(mask, x.tail, y.tail)};
}

/// Magnitudes below it are their own sine, tangent, hyperbolic sine, ...
template <Precision kPrecision>
inline constexpr double kTiny = choose<kPrecision>(0x1p-26, 0x1p-55);

/// The product of x and the sum of two constants; `high` is the rounded sum.
template <class T>
Sum<T> product(const T& x, double high, double low) {
  using namespace real;
  const T head = x * T(high);
  return {head, fma(x, T(low), fma(x, T(high), -head))};
}
template <class T>
Sum<T> product(const Sum<T>& x, double high, double low) {
  using namespace real;
  const Sum<T> of_head = product(x.head, high, low);
  return {of_head.head, fma(x.tail, T(high), of_head.tail)};
}

/// x 2^n, rounded once. The lower word of `sum` has n + 2 kBias in its low bits, and n is in
/// [-kBias - kFractionBits - 1, kBias + 2]. A power of two whose exponent is out of the format's range is applied as
/// two factors, and the first product is exact if |x| is near 1.
template <Precision kPrecision, class T>
T timesPower(const T& x, const T& sum) {
  using namespace real;
  using F = Format<kPrecision>;
  const auto exponent = lowerWord(sum);
  const auto half = shiftLeft(exponent, F::kUpperFractionBits - 1) & F::kUpperOthers;
  const auto rest = shiftLeft(exponent, F::kUpperFractionBits) - half;
  const T first = x * withWords(x, half, 0);
  return first * withWords(x, rest, 0);
}

}  // namespace srjit::functions
