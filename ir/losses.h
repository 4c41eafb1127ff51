// The losses of losses.def.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "ir/real.h"

namespace srjit {

/// The number that a row adds to a sum, times the row's weight: first the terms that kernels have, then those of
/// graphs.
enum class LossTerm {
#define SRJIT_LOSS_MOMENTS(id, name, mean, square, joint) id,
#include "ir/losses.def"
#define SRJIT_LOSS_TERM(id, name, value) id,
#include "ir/losses.def"
#define SRJIT_GRAPH_TERM(id, name, tuning, targets, value, reweighting) id,
#include "ir/losses.def"
};

/// The definition of a loss, by the doc column of losses.def.
enum class LossKind {
#define SRJIT_LOSS(id, name, term, unit, value, worst, doc) id,
#include "ir/losses.def"
#define SRJIT_SCALED_LOSS(id, name, term, unit, value, worst, doc) id,
#include "ir/losses.def"
};

/// The constant c that some losses have.
enum class LossTuning : std::uint8_t { kUntuned, kThreshold, kLevel };
/// Which targets a loss has a meaning for.
enum class LossTargets : std::uint8_t { kAnyTarget, kShares, kCounts };

/// Whether the term is that of scaled losses, and reads the target less its centre.
constexpr bool isOfMoments(LossTerm term) noexcept {
  switch (term) {
#define SRJIT_LOSS_MOMENTS(id, name, mean, square, joint) case LossTerm::id:
#include "ir/losses.def"
    return true;
    default:
      return false;
  }
}

/// The sums of a term that isOfMoments(), and those that only the target decides.
inline constexpr std::size_t kMomentSums = 3, kTargetSums = 2;
constexpr std::size_t sumsOf(LossTerm term) noexcept { return isOfMoments(term) ? kMomentSums : 1; }

struct LossInfo {
  LossKind kind;
  std::string_view name;
  LossTerm term;
  std::optional<int> unit;  ///< the power of the target's unit; not set: terms read f and y as they are
  double worst;             ///< the value under NanPolicy::kReject where a prediction is not finite
  std::string_view doc;

  bool isScaled() const noexcept { return isOfMoments(term); }
};

struct LossTermInfo {
  LossTerm term;
  std::string_view name;
  LossTuning tuning = LossTuning::kUntuned;
  LossTargets targets = LossTargets::kAnyTarget;
};

/// All rows, in the order of the enumerators. Thread-safe.
std::span<const LossInfo> allLosses() noexcept;
std::span<const LossTermInfo> allLossTerms() noexcept;
/// Those terms that kernels have.
std::span<const LossTermInfo> kernelLossTerms() noexcept;
const LossInfo& infoOf(LossKind kind) noexcept;
const LossTermInfo& infoOf(LossTerm term) noexcept;
/// Whether kernels of losses compute it. Others are sums of predictions of graphs.
bool isInKernels(LossTerm term) noexcept;

/// The term of one row, before its weight, for the prediction f and the target y; generic in the domain T (rows.h).
/// `term` is one of one sum that kernels have.
template <class T>
T lossTerm(LossTerm term, [[maybe_unused]] const T& f, [[maybe_unused]] const T& y) {
  using namespace real;
  [[maybe_unused]] const T d = f - y;
  switch (term) {
#define SRJIT_LOSS_TERM(id, name, value) \
  case LossTerm::id:                     \
    return value;
#include "ir/losses.def"
    default:
      __builtin_unreachable();
  }
}

/// Calls `take` with the terms of one row, in the order of their sums, for any term that kernels have. Of moments, `y`
/// is the target less its centre.
template <class T, class Take>
void eachLossTerm(LossTerm term, const T& f, const T& y, const Take& take) {
  switch (term) {
#define SRJIT_LOSS_MOMENTS(id, name, mean, square, joint)                             \
  case LossTerm::id: {                                                                \
    const T& z = y;                                                                   \
    for (const T& value : std::initializer_list<T>{mean, square, joint}) take(value); \
    return;                                                                           \
  }
#include "ir/losses.def"
    default:
      take(lossTerm(term, f, y));
  }
}

/// The same of the sums that only the target decides.
template <class T, class Take>
void eachTargetTerm(const T& z, const Take& take) {
  take(z);
  take(z * z);
}

/// The numbers of one row that terms of graphs read besides its prediction and target. c, m and s are in scaled units.
struct LossConstants {
  double tuning = 0;              ///< c
  double target_centre = 0;       ///< m, of moments
  double least_difference = 1.0;  ///< s; above 0
  /// Scaled units: terms of losses with a unit read y * scale and f * scale, but moments f as it is; sums add
  /// terms times w * weight_scale. Powers of two, so that the products are exact: squares stay in the range of the
  /// precision. 1 for ordinary data (Dataset::State).
  double scale = 1;
  double weight_scale = 1;

  friend bool operator==(const LossConstants&, const LossConstants&) = default;
};

/// The term of one row, and its weight in reweighted steps. Terms of kernels have no such weight.
template <class T>
struct RowTerm {
  T value;
  std::optional<T> reweighting;
};

/// The same as lossTerm() for every term of one sum; f and y are in scaled units.
template <class T>
RowTerm<T> rowTerm(LossTerm term, const T& f, const T& y, const LossConstants& constants) {
  using namespace real;
  if (isInKernels(term)) return {lossTerm(term, f, y), {}};
  const auto number = [](double value) { return static_cast<T>(value); };
  [[maybe_unused]] const T c = number(constants.tuning), s = number(constants.least_difference);
  [[maybe_unused]] const T d = f - y;
  switch (term) {
#define SRJIT_GRAPH_TERM(id, name, tuning, targets, value, reweighting) \
  case LossTerm::id:                                                    \
    return {value, reweighting};
#include "ir/losses.def"
    default:
      __builtin_unreachable();
  }
}

/// Calls `apply` with the formula of a kind that is not scaled, a generic function of `sum` and `mean` (losses.def),
/// and returns what it gives.
template <class Apply>
auto withLossFormula(LossKind kind, [[maybe_unused]] double variance, const Apply& apply) {
  switch (kind) {
#define SRJIT_LOSS(id, name, term, unit, value, worst, doc)                   \
  case LossKind::id:                                                          \
    return apply([=]([[maybe_unused]] auto sum, [[maybe_unused]] auto mean) { \
      using std::sqrt;                                                        \
      return value;                                                           \
    });
#include "ir/losses.def"
    default:
      __builtin_unreachable();
  }
}

/// A scaled loss, generic in the type of its numbers as withLossFormula() is.
template <class T>
T scaledLossFormula(LossKind kind, [[maybe_unused]] const T& sum, [[maybe_unused]] const T& mean,
                    [[maybe_unused]] const T& correlation, [[maybe_unused]] double variance) {
  using std::sqrt;
  switch (kind) {
#define SRJIT_SCALED_LOSS(id, name, term, unit, value, worst, doc) \
  case LossKind::id:                                               \
    return value;
#include "ir/losses.def"
    default:
      __builtin_unreachable();
  }
}

}  // namespace srjit
