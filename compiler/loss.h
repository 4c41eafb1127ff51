// What a loss kernel accumulates, and the tree in which it adds.
#pragma once

#include <cstddef>

namespace srjit {

/// The term of one row, from its prediction f, target y and weight w (1 without weights).
enum class LossTerm {
  kSquared,   ///< w * ((f - y) * (f - y))
  kAbsolute,  ///< w * |f - y|
};

struct LossSpec {
  LossTerm term = LossTerm::kSquared;
  bool weighted = false;
  /// Whether rows with a non-finite prediction are counted and add 0 instead of their term.
  bool skip_invalid = false;

  friend bool operator==(const LossSpec&, const LossSpec&) = default;
};

/// Sums have one fixed tree on every device, whatever the launch shape: the terms of kGroupRows adjacent rows (rows
/// past the end count as +0) are added pairwise, (0+1)+(2+3), ..., in the kernel's precision; the sums of groups are
/// then added in double, group after group.
inline constexpr std::size_t kGroupRows = 128;

}  // namespace srjit
