// Units of columns, and what they demand of formulas: dimensional analysis (P. W. Bridgman, "Dimensional Analysis",
// 1922). A formula that keeps the units is the same law in any system of units.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/text.h"
#include "tools/search/trees/arrays.h"

namespace srjit::search {

/// A unit: the exponents of base units, 0 for those beyond its end.
using Unit = std::vector<double>;
inline constexpr std::size_t kMostBaseUnits = 8;

enum class UnitConstants : std::uint8_t { kFree, kDimensionless };  ///< a constant has any unit, or none
enum class UnitRule : std::uint8_t { kHard, kPenalty };             ///< forbids what breaks units, or handicaps it

/// The units of the columns and of the target. Every operator runs its row of ops.def in the domain of units: + needs
/// equal units, * adds exponents, sqrt halves them; exp needs a number without unit, and so does a threshold in a row,
/// as that of pdiv. A power multiplies exponents by a constant, and by nothing else. A free constant takes the unit
/// that its place needs. Plain data; const members are thread-safe.
class Dimensions {
 public:
  /// Of `count` columns, which need no names, and "mass:kg,force:kg*m/s^2,energy:J": names of columns or
  /// of the target, for which `target` stands, too, and units. A unit has * / ^ and parentheses, and words: m kg s A K
  /// mol cd; N J W Pa V C Hz ohm F T Wb H, which stand for these; rad, which is 1; any other word is a base unit of its
  /// own. A column that is not named has no unit, as if it were 1; a target that is not named may have any. Errors
  /// (kInvalid, kSyntax), with the place: a name that is no column or occurs twice, a unit that cannot be read, more
  /// than kMostBaseUnits base units.
  static Result<Dimensions> parse(std::string_view text, const ColumnNames& columns, std::size_t count);

  UnitConstants constants = UnitConstants::kFree;
  UnitRule rule = UnitRule::kHard;

  /// Whether a tree, with the tokens of `wrapper` behind it, has consistent units and that of the target. A variable
  /// that is no column has any unit.
  bool keep(const TreeView& tree, std::span<const std::int32_t> wrapper = {}) const;

  /// The units of the constants of a formula, in their order, as "kg*m/s^2", "s^(1/2)" or "1": each is the one that its
  /// place needs. Where places leave a choice, as in a product of constants, the first takes what is left, and the
  /// others have none. Null where only the unit of the target could tell, and if the formula breaks units.
  std::vector<std::optional<std::string>> ofConstants(const Expression& formula) const;

 private:
  Result<Unit> read(std::string_view text);
  std::optional<Unit> unitOf(const std::string& word);
  std::size_t equate(const TreeView& tree, std::span<const std::int32_t> wrapper) const;

  std::vector<std::string> bases_;
  std::vector<Unit> columns_;
  std::optional<Unit> target_;
};

}  // namespace srjit::search
