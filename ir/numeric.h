// The two choices that fix the meaning of numbers: precision and math mode.
#pragma once

#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>

namespace srjit {

/// The type every kernel computes in.
enum class Precision { kF32, kF64 };
/// All, in the order of the enumerators.
inline constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kF64};

/// How faithfully a kernel follows the expression as written (docs/accuracy.md).
enum class Math {
  kStrict,   ///< IEEE operations as written; nothing fused
  kPrecise,  ///< fused multiply-add; correctly rounded / and sqrt; accurate functions
  kFast,     ///< approximate instructions and value-changing rewrites; f32 only, in f64 as precise
};
/// All, in the order of the enumerators.
inline constexpr Math kMathModes[] = {Math::kStrict, Math::kPrecise, Math::kFast};

/// Calls `body` with a zero of the precision's type, and returns its result. Code that depends on a precision calls
/// this or has a `switch` without a default, so that the compiler names each place that lacks a new precision.
template <class Body>
constexpr decltype(auto) withZeroOf(Precision precision, Body&& body) {
  switch (precision) {
    case Precision::kF32:
      return body(0.0F);
    case Precision::kF64:
      return body(0.0);
  }
  __builtin_unreachable();
}

namespace detail {
float numberOf(std::integral_constant<Precision, Precision::kF32>);
double numberOf(std::integral_constant<Precision, Precision::kF64>);
}  // namespace detail
/// The type of a precision's numbers.
template <Precision kPrecision>
using NumberTypeOf = decltype(detail::numberOf(std::integral_constant<Precision, kPrecision>()));

/// The precision whose numbers have the type T. Another type than theirs does not compile.
template <class T>
  requires std::same_as<T, float> || std::same_as<T, double>
inline constexpr Precision kPrecisionOf = std::same_as<T, float> ? Precision::kF32 : Precision::kF64;

/// Whether numbers of a precision are doubles. GPUs keep a double in two registers, and have instructions of their own
/// for it.
constexpr bool isDouble(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return false;
    case Precision::kF64:
      return true;
  }
  __builtin_unreachable();
}
constexpr int bytesOf(Precision precision) {
  return withZeroOf(precision, [](auto zero) { return static_cast<int>(sizeof zero); });
}
/// `value` as a kernel of the precision holds it.
constexpr double roundTo(Precision precision, double value) {
  return withZeroOf(precision, [&]<class T>(T) { return static_cast<double>(static_cast<T>(value)); });
}
/// The distance of 1 from the next larger number.
constexpr double lastPlace(Precision precision) {
  return withZeroOf(precision, []<class T>(T) -> double { return std::numeric_limits<T>::epsilon(); });
}
constexpr const char* nameOf(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return "f32";
    case Precision::kF64:
      return "f64";
  }
  __builtin_unreachable();
}
/// Whether the approximate instructions and rewrites of Math::kFast apply.
constexpr bool isApproximate(Math math, Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return math == Math::kFast;
    case Precision::kF64:
      return false;
  }
  __builtin_unreachable();
}
constexpr const char* nameOf(Math math) {
  switch (math) {
    case Math::kStrict:
      return "strict";
    case Math::kPrecise:
      return "precise";
    case Math::kFast:
      return "fast";
  }
  __builtin_unreachable();
}

/// The meaning of "the same bits": any NaN equals any NaN; 0 and -0 differ.
template <std::floating_point T>
bool sameBits(T a, T b) {
  return (a == b && std::signbit(a) == std::signbit(b)) || (std::isnan(a) && std::isnan(b));
}

}  // namespace srjit
