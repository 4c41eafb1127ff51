// Seeded random numbers, the same on every machine (ir/mix.h).
#pragma once

#include <cstdint>

namespace srjit {

/// SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() noexcept;
  /// Uniform on 0 .. n - 1; n > 0. Its bias is below n / 2^64.
  std::uint64_t below(std::uint64_t n) noexcept;
  /// Uniform on min .. max.
  int between(int min, int max) noexcept;
  /// Uniform on [0, 1), a multiple of 2^-53.
  double unit() noexcept;
  double between(double min, double max) noexcept { return min + (max - min) * unit(); }
  /// Uniform in significand and exponent: 2^min to 2^(max + 1), of either sign.
  double magnitude(int min, int max) noexcept;
  bool chance(double probability) noexcept { return unit() < probability; }

 private:
  std::uint64_t state_;
};

}  // namespace srjit
