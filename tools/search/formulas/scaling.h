// Least squares of a + b f, whatever the scale of the numbers.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "tools/search/rows.h"

namespace srjit::search {

/// Numbers v as centre + 2^exponent * deviation; the largest deviation is in [1, 2), or 0 if all v are the same.
struct Standardised {
  double centre = 0;  ///< the weighted mean, rounded
  int exponent = 0;
  std::vector<double> deviations;
};

/// Without a sum that overflows. `values`: finite, one for each row of `rows`, which gives the weights.
Standardised standardise(std::span<const double> values, const RowSet& rows);

/// The best a and b of a + b f by least squares, and the best b of b f.
struct Scaling {
  double offset = 0, slope = 1, factor = 1;
  double rest = std::numeric_limits<double>::infinity();  ///< the share of the variance that a + b f leaves
};

/// `predictions` and the standardised target: one for each row of `rows`, which gives the weights. If a prediction is
/// not finite, only what Scaling begins with.
Scaling bestScaling(std::span<const double> predictions, const Standardised& target, const RowSet& rows);

}  // namespace srjit::search
