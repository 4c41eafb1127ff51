// Units: powers of two by which selection divides numbers, so that they are near 1 there, whatever their size. Division
// by a power of two is exact.
//
// Half of the islands see columns as they are: laws of consistent units need no constant there. If a column is far from
// 1, the other half sees every such column in its unit: its constants are near 1, where search and fits look for them.
// The trees of both become formulas in the columns as they are. Columns that f32 cannot tell apart are selected in f64.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "tools/search/link.h"
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

/// Whether f32 does for numbers, their products and their differences: magnitudes are 2^16 at most, in their geometric
/// mean 2^-16 at least, and each 2^-90 at least; and numbers that differ do so by 2^-17 of the largest at least.
bool fitsF32(std::span<const double> values);

/// The units of the columns of a table.
class Units {
 public:
  Units() = default;
  /// The unit of a column is the geometric mean of its magnitudes, or its range if that is smaller; 1 if that is from
  /// 2^-16 to 2^16.
  static Units of(const RowSet& rows);

  /// Whether a unit is not 1.
  bool areNeeded() const noexcept;
  /// Whether squares of some column are beyond the range of f64, so that only units are of use.
  bool areBeyondF64() const noexcept;
  /// The columns divided by their units.
  std::vector<std::vector<double>> divide(const std::vector<std::vector<double>>& columns) const;

  /// A tree over columns, from one over columns in their units: equal, but for a factor if it `is_scaled` later.
  /// Factors of units go through products, powers and roots, and into constants; a constant of its own is written only
  /// where sums of different units, and functions, need it. None if a constant is beyond the range of f64.
  std::optional<std::vector<Token>> folded(std::span<const Token> tree, bool is_scaled) const;
  /// The same with the factor of its unit beside each variable: longer, but without numbers beyond the range of f64.
  std::vector<Token> spelled(std::span<const Token> tree) const;

 private:
  std::vector<int> exponents_;  ///< by column: of its unit
};

/// What islands search in: a link of the target, and columns as they are, or in their units.
struct Frame {
  const Link* link = nullptr;
  bool in_units = false;
};

}  // namespace srjit::search
