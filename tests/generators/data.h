// Seeded random numbers and data columns for tests.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "ir/numeric.h"
#include "tests/generators/population.h"

namespace srjit {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The distribution of random values.
enum class Spread {
  kTame,     ///< uniform on (-3, 3)
  kWide,     ///< tame values, small integers, and both signs of magnitudes from 2^-20 to 2^20
  kSpecial,  ///< wide, and one in eight is a zero, an infinity, NaN, a subnormal or the largest number of `precision`
};

double randomValue(Random& random, Spread spread, Precision precision = Precision::kF64);

/// `count` columns of `rows` values each, rounded to `precision`.
std::vector<std::vector<double>> randomColumns(Random& random, std::size_t count, std::size_t rows, Spread spread,
                                               Precision precision = Precision::kF64);

/// Operands of mod, `count` dividends and then as many divisors: of any bits, whose quotients are of any size, and
/// multiples with their neighbours.
template <class T>
std::vector<T> remainderOperands(Random& random, std::size_t count) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  std::vector<T> operands(2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    T& x = operands[i];
    T& y = operands[count + i];
    x = std::bit_cast<T>(static_cast<Bits>(random.next()));
    y = i % 4 == 0 ? std::bit_cast<T>(static_cast<Bits>(random.next())) : static_cast<T>(random.magnitude(-30, 30));
    if (i % 4 == 1) continue;
    if (i % 4 >= 2) x = static_cast<T>(random.between(-1'000'000, 1'000'000)) * y;
    if (i % 4 == 3) x = std::nextafter(x, random.chance(0.5) ? T(1e30) : T(-1e30));
  }
  return operands;
}

/// Zeros, infinities, NaN, extremes, thresholds of protected operators and a few ordinary numbers.
template <class T>
std::vector<T> specialNumbers() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> numbers = {0, T(0.5), 1, 2, 3, T(0.3), T(0.001), T(1e-9), std::nextafter(T(0.001), T(1)), 1024};
  for (const T value : {Limits::infinity(), Limits::max(), Limits::min(), Limits::denorm_min()})
    numbers.push_back(value);
  const std::size_t positive = numbers.size();
  for (std::size_t i = 0; i < positive; ++i) numbers.push_back(-numbers[i]);
  numbers.push_back(Limits::quiet_NaN());
  return numbers;
}

/// Random bits; every NaN becomes the quiet one, since data files and arithmetic give no other.
template <class T>
T anyBits(Random& random) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  const T value = std::bit_cast<T>(static_cast<Bits>(random.next()));
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

}  // namespace srjit
