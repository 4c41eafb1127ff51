#include "passes/rules/conditions.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace srjit {
namespace {

bool isNormal(double value, Precision precision) {
  return withZeroOf(precision, [&]<class T>(T) { return std::isnormal(static_cast<T>(value)); });
}

/// Whether the magnitude of `value` is a power of two.
bool isPowerOfTwo(double value) {
  // From the bits, since std::frexp is a call that devices lack.
  constexpr int kFractionBits = std::numeric_limits<double>::digits - 1;
  constexpr std::uint64_t kInfinity = std::bit_cast<std::uint64_t>(std::numeric_limits<double>::infinity());
  const std::uint64_t magnitude = std::bit_cast<std::uint64_t>(value) & ~(std::uint64_t{1} << 63);
  const std::uint64_t fraction = magnitude & ((std::uint64_t{1} << kFractionBits) - 1);
  const bool is_subnormal = fraction == magnitude;
  return is_subnormal ? std::has_single_bit(fraction) : fraction == 0 && magnitude != kInfinity;
}

/// A division by `value` is then a multiplication, bit for bit.
bool hasExactReciprocal(double value, Precision precision) {
  return isPowerOfTwo(value) && isNormal(1 / value, precision);
}

// The thresholds of two rows of ops.def as kernels have them.
double thresholdOfPdiv(Precision precision) {
  return withZeroOf(precision, []<class T>(T) { return double{static_cast<T>(0.001)}; });
}
double thresholdOfLooseDiv(Precision precision) {
  return withZeroOf(precision, []<class T>(T) { return double{static_cast<T>(1e-9)}; });
}

/// By rule: its line in the table, for the labels of a `switch`, since rows have no names.
constexpr std::uint16_t kLinesOfRules[] = {
#define SRJIT_RULE(...) __LINE__,
#include "passes/rules/simplify.def"
#undef SRJIT_RULE
};

}  // namespace

bool conditionHolds(std::size_t rule, [[maybe_unused]] double p0, [[maybe_unused]] double p1,
                    [[maybe_unused]] Precision precision) noexcept {
  switch (kLinesOfRules[rule]) {
#define SRJIT_RULE(mode, pattern, replacement, condition) \
  case __LINE__:                                          \
    return condition;
#include "passes/rules/simplify.def"
#undef SRJIT_RULE
    default:
      __builtin_unreachable();
  }
}

}  // namespace srjit
