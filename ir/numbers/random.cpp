#include "ir/numbers/random.h"

#include <cmath>

#include "ir/mix.h"

namespace srjit {

std::uint64_t Random::next() noexcept { return nextRandom(state_); }

std::uint64_t Random::below(std::uint64_t n) noexcept {
  // The high half of a 64 by 64 bit product, from 32-bit halves: ISO C++ has no wider type.
  const std::uint64_t x = next();
  const std::uint64_t mask = 0xffffffffu;
  const std::uint64_t middle = (x >> 32) * (n & mask) + (((x & mask) * (n & mask)) >> 32);
  const std::uint64_t low = (x & mask) * (n >> 32) + (middle & mask);
  return (x >> 32) * (n >> 32) + (middle >> 32) + (low >> 32);
}

int Random::between(int min, int max) noexcept {
  return min + static_cast<int>(below(static_cast<std::uint64_t>(max - min) + 1));
}

double Random::unit() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }

double Random::magnitude(int min, int max) noexcept {
  // One draw per statement: the order in which arguments are evaluated differs between compilers.
  const int exponent = between(min, max);
  const double significand = between(1.0, 2.0);
  return std::ldexp(chance(0.5) ? significand : -significand, exponent);
}

}  // namespace srjit
