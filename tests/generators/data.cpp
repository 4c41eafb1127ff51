#include "tests/generators/data.h"

#include <cmath>
#include <limits>

namespace srjit {
namespace {

double wideValue(Random& random) {
  switch (random.below(3)) {
    case 0:
      return random.between(-3.0, 3.0);
    case 1:
      return random.between(-5, 5);
    default:
      return random.magnitude(-20, 19);
  }
}

template <class T>
double specialValue(Random& random) {
  using Limits = std::numeric_limits<T>;
  constexpr T kMost = Limits::infinity(), kLargest = Limits::max(), kLeast = Limits::denorm_min();
  constexpr T kSpecial[] = {0,        -T(0),     kMost,         -kMost, Limits::quiet_NaN(),
                            kLargest, -kLargest, Limits::min(), kLeast, -kLeast};
  return static_cast<double>(kSpecial[random.below(std::size(kSpecial))]);
}

}  // namespace

double randomValue(Random& random, Spread spread, Precision precision) {
  if (spread == Spread::kTame) return roundTo(precision, random.between(-3.0, 3.0));
  if (spread == Spread::kSpecial && random.chance(0.125)) {
    return precision == Precision::kF32 ? specialValue<float>(random) : specialValue<double>(random);
  }
  return roundTo(precision, wideValue(random));
}

std::vector<std::vector<double>> randomColumns(Random& random, std::size_t count, std::size_t rows, Spread spread,
                                               Precision precision) {
  std::vector<std::vector<double>> columns(count);
  for (auto& column : columns) {
    column.reserve(rows);
    for (std::size_t i = 0; i < rows; ++i) column.push_back(randomValue(random, spread, precision));
  }
  return columns;
}

}  // namespace srjit
