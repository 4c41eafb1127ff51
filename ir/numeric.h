// The two choices that fix what numbers mean: precision and math mode.
#pragma once

#include <cmath>
#include <concepts>

namespace srjit {

/// The type every kernel computes in.
enum class Precision { kF32, kF64 };

/// How faithfully a kernel follows the expression as written (docs/accuracy.md).
enum class Math {
  kStrict,   ///< IEEE operations as written; nothing fused
  kPrecise,  ///< fused multiply-add; correctly rounded / and sqrt; library functions
  kFast,     ///< approximate instructions and value-changing rewrites; f32 only, in f64 as precise
};

/// What `body` gives for a zero of the precision's type: withZeroOf(precision, [&](auto zero) { ... decltype(zero) ...
/// }). Whatever depends on a precision is decided here or by another `switch` without a default, so that the compiler
/// names what a third one lacks.
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

/// The type of a precision's numbers.
template <Precision kPrecision>
struct NumberTypeOf;
template <>
struct NumberTypeOf<Precision::kF32> {
  using Type = float;
};
template <>
struct NumberTypeOf<Precision::kF64> {
  using Type = double;
};

/// The precision of a type of numbers.
template <std::floating_point T>
inline constexpr Precision kPrecisionOf = std::same_as<T, float> ? Precision::kF32 : Precision::kF64;

constexpr int bytesOf(Precision precision) {
  return withZeroOf(precision, [](auto zero) { return static_cast<int>(sizeof zero); });
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
  return math == Math::kStrict ? "strict" : math == Math::kPrecise ? "precise" : "fast";
}

/// What "the same bits" means: any NaN equals any NaN; 0 and -0 differ.
template <std::floating_point T>
bool sameBits(T a, T b) {
  return (a == b && std::signbit(a) == std::signbit(b)) || (std::isnan(a) && std::isnan(b));
}

}  // namespace srjit
