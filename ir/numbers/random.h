// Seeded random numbers, the same on every machine (ir/mix.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "ir/mix.h"

namespace srjit {

/// SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() noexcept { return nextRandom(state_); }
  /// Uniform on 0 .. n - 1; n > 0. Its bias is below n / 2^64.
  std::uint64_t below(std::uint64_t n) noexcept {
    // The high half of a 64 by 64 bit product, from 32-bit halves: ISO C++ has no wider type.
    const std::uint64_t x = next();
    const std::uint64_t mask = 0xffffffffu;
    const std::uint64_t middle = (x >> 32) * (n & mask) + (((x & mask) * (n & mask)) >> 32);
    const std::uint64_t low = (x & mask) * (n >> 32) + (middle & mask);
    return (x >> 32) * (n >> 32) + (middle >> 32) + (low >> 32);
  }
  /// Uniform on min .. max.
  int between(int min, int max) noexcept {
    return min + static_cast<int>(below(static_cast<std::uint64_t>(max - min) + 1));
  }
  /// Uniform on [0, 1), a multiple of 2^-53.
  double unit() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double between(double min, double max) noexcept { return min + (max - min) * unit(); }
  /// Uniform in significand and exponent: 2^min to 2^(max + 1), of either sign.
  double magnitude(int min, int max) noexcept {
    // One draw per statement: the order in which arguments are evaluated differs between compilers.
    const int exponent = between(min, max);
    const double significand = between(1.0, 2.0);
    return std::ldexp(chance(0.5) ? significand : -significand, exponent);
  }
  bool chance(double probability) noexcept { return unit() < probability; }

 private:
  std::uint64_t state_;
};

}  // namespace srjit
