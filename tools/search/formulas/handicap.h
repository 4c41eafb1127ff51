// What selection adds to the losses of trees that are no formulas to show: those that break units where these are only
// a penalty, and those against the trends that formulas must have.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "tools/search/grammar.h"

namespace srjit::search {

/// Immutable; thread-safe.
class Handicap {
 public:
  static constexpr std::size_t kPlaces = 12;  ///< rows that are enough
  /// `columns`: of some rows, as trees see them.
  Handicap(std::span<const Trend> trends, std::vector<std::vector<double>> columns)
      : trends_(trends.begin(), trends.end()), columns_(std::move(columns)) {}

  /// The loss that counts for selection.
  double of(double loss, const TreeView& tree, const Grammar& grammar) const;

 private:
  /// Whether slopes at the rows are those of the trends, or all of them opposite ones: what stands around the tree
  /// decides that.
  bool mayHaveTrends(const TreeView& tree) const;

  std::vector<Trend> trends_;
  std::vector<std::vector<double>> columns_;
};

}  // namespace srjit::search
