// The sums of every kernel of a loss, on any device, and the tree in which it adds.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <span>

#include "ir/losses.h"

namespace srjit {

struct LossSpec {
  LossTerm term = LossTerm::kSquared;
  bool weighted = false;
  /// Whether rows with a non-finite prediction are counted and add 0 instead of their term.
  bool skip_invalid = false;

  /// Kernels add up several sums for each output, its channels: those of the term, then those of the target, then
  /// those that say which rows counted, which are their number and, with weights, the sum of these.
  constexpr std::size_t sums() const noexcept { return sumsOf(term); }
  constexpr std::size_t targetSums() const noexcept { return skip_invalid && isOfMoments(term) ? kTargetSums : 0; }
  constexpr std::size_t counts() const noexcept { return !skip_invalid ? 0 : weighted ? 2 : 1; }
  constexpr std::size_t channels() const noexcept { return sums() + targetSums() + counts(); }

  friend bool operator==(const LossSpec&, const LossSpec&) = default;
};

/// LossSpec::channels() at most.
inline constexpr std::size_t kMostChannels = LossSpec{LossTerm::kMoments, true, true}.channels();

/// Sums have one fixed tree on every device, whatever the launch shape. The items of a row group, kGroupRows adjacent
/// rows (those of rows past the end, and of rows that are left out, count as +0) are added pairwise, (0+1)+(2+3), ...,
/// in the kernel's precision: terms times their weights, and under skip_invalid also the target's terms and the weights
/// of valid rows. The sums of row groups are added in double in kSumChains chains, chain c taking the row groups c, c +
/// kSumChains, ... in order; the chains are added pairwise.
inline constexpr std::size_t kGroupRows = 128;
inline constexpr std::size_t kSumChains = 32;

/// Of `rows` rows, those that a kernel has counted as valid. Without them, `counted` may be any number.
constexpr std::uint64_t countedRows(double counted, std::uint64_t rows) noexcept {
  const double most = static_cast<double>(rows);
  return counted > 0 ? static_cast<std::uint64_t>(counted < most ? counted : most) : 0;
}

/// The sum of the first `count` items in pairs of neighbours, of their sums, and so on. `count` is a power of two.
template <class T, std::size_t N>
T pairwiseSum(std::array<T, N> items, std::size_t count = N) {
  for (; count > 1; count /= 2) {
    for (std::size_t i = 0; i < count / 2; ++i) items[i] = items[2 * i] + items[2 * i + 1];
  }
  return items[0];
}

/// The chains of one sum. Adding row groups in several calls gives the same as in one, if every call but the last has a
/// multiple of kSumChains of them.
class SumChains {
 public:
  template <class T>
  void add(std::span<const T> row_groups) {
    for (std::size_t g = 0; g < row_groups.size(); ++g) chains_[g % kSumChains] += static_cast<double>(row_groups[g]);
    used_ = std::max(used_, std::min(row_groups.size(), kSumChains));
  }
  /// Chains without a row group are +0, and no chain is -0, so they are left out.
  double sum() const { return pairwiseSum(chains_, std::bit_ceil(used_)); }

 private:
  std::array<double, kSumChains> chains_{};
  std::size_t used_ = 0;
};

}  // namespace srjit
