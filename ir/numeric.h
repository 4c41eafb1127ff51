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

constexpr int bytesOf(Precision precision) { return precision == Precision::kF32 ? 4 : 8; }
constexpr const char* nameOf(Precision precision) { return precision == Precision::kF32 ? "f32" : "f64"; }
constexpr const char* nameOf(Math math) {
  return math == Math::kStrict ? "strict" : math == Math::kPrecise ? "precise" : "fast";
}

/// What "the same bits" means: any NaN equals any NaN; 0 and -0 differ.
template <std::floating_point T>
bool sameBits(T a, T b) {
  return (a == b && std::signbit(a) == std::signbit(b)) || (std::isnan(a) && std::isnan(b));
}

}  // namespace srjit
