// Whether sums over rows are accurate enough for a scaled loss, and which predictions have better ones.
#pragma once

#include <array>
#include <optional>

#include "ir/numeric.h"
#include "runtime/evaluation/loss_value.h"

namespace srjit {

/// Scaled losses do not depend on the scale and the offset of a prediction f, but the rounding of their sums does. The
/// sums of fma(f, factor, offset), with a factor that is a power of two, round no more than those of a prediction with
/// a mean near 0 and squares near 1. Both are exact in the precision of the sums.
struct Conditioning {
  double factor = 1, offset = 0;

  friend bool operator==(const Conditioning&, const Conditioning&) = default;
};

/// How often the sums of an expression are computed at most: of f; in another range; about its mean; about its mean as
/// the sums about the first estimate tell it, twice.
inline constexpr int kMostConditionings = 4;

/// Of the sums of a scaled loss of fma(f, now.factor, now.offset): the conditioning with which they are to be computed
/// again; nothing if they are good enough, if no other sums would be better, or if a prediction is not finite. Sets
/// sums.is_constant where they show that f is: where its standard deviation is at most two units of the last place of
/// its mean. Accurate sums are those of a prediction whose mean's square is at most 16 times its variance. Pure: the
/// same numbers on every device.
std::optional<Conditioning> betterConditioning(LossSums& sums, const Conditioning& now, Precision precision);

}  // namespace srjit
