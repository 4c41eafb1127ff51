// Seeded random numbers and data columns for tests.
#pragma once

#include <limits>
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

/// `value` as a kernel of `precision` holds it.
double roundTo(Precision precision, double value) noexcept;

double randomValue(Random& random, Spread spread, Precision precision = Precision::kF64);

/// `count` columns of `rows` values each, rounded to `precision`.
std::vector<std::vector<double>> randomColumns(Random& random, std::size_t count, std::size_t rows, Spread spread,
                                               Precision precision = Precision::kF64);

}  // namespace srjit
