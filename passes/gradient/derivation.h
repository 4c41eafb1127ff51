// What replaces an expression's value: derivatives, and the sums over rows that make up a loss, its gradient or normal
// equations. All of these are roots of the expression's graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ir/expression.h"
#include "ir/losses.h"
#include "passes/derivatives.h"

namespace srjit {

/// The roots of an expression f with target y, weight w and derivatives f_i, i < count. l is a term of a loss, and l'
/// its derivative by f. All are in scaled units (LossConstants::scale). An f_i is finite where f is, or counts as 0
/// there, unless it overflows.
enum class Quantity : std::uint8_t {
  kJacobian,         ///< f_0, f_1, ...
  kLoss,             ///< w l for each term
  kGradient,         ///< these, and for each i (w l') f_i for each term
  kNormalEquations,  ///< terms w (r r), (w r) f_i, and (w f_i) f_j for i <= j, by i, then j, where r = y - f
  kReweighted,       ///< the same of a loss of one term: w l, (w l' / -2) f_i, and ((w h / 2) f_i) f_j with curvature h
  kTangent,          ///< by rows, not summed: r, f_0, f_1, ... of normal equations, then w with weights
};

/// The loss that a quantity is about.
struct DerivedLoss {
  LossTerm term = LossTerm::kSquared;  ///< its term, or
  /// its term is this expression: x0 is f, x1 is y and x2 is w. It has no parameters.
  std::optional<Expression> custom = {};
  LossConstants constants = {};

  bool isScaled() const noexcept { return !custom && isOfMoments(term); }
  std::size_t terms() const noexcept { return isScaled() ? kMomentSums : 1; }
  /// Whether its term may be infinite or NaN where f is finite, but by overflow: as if f were not.
  bool hasDomain() const noexcept { return custom.has_value() || !isInKernels(term); }

  friend bool operator==(const DerivedLoss&, const DerivedLoss&) = default;
};

/// The quantity derived of every expression of a program. The target is read as variable `columns`, weights as the one
/// after it.
struct Derivation {
  Quantity quantity = Quantity::kJacobian;
  DerivativesBy by = DerivativesBy::kParameters;
  std::uint32_t columns = 0;  ///< variables of the data
  /// For sums:
  DerivedLoss loss = {};  ///< but of normal equations
  bool weighted = false;  ///< w is 1 otherwise
  /// Terms are 0 in rows where f, or the term of a loss that hasDomain(), is not finite. In other rows an f_i that is
  /// not finite counts as 0. Without this flag, only those derivatives count as 0 that an operator makes infinite or
  /// NaN; overflows stay. Roots follow: of a scaled loss, w z and w (z z) in the other rows, with z = y - m as in
  /// losses.def; one that is 1 in the other rows, and with weights another that is w there.
  bool skips_invalid = false;

  /// Whether roots are terms of sums over rows, which kernels add as they are.
  bool isSummed() const noexcept { return quantity != Quantity::kJacobian && quantity != Quantity::kTangent; }
  /// Whether roots read the target and the weights.
  bool readsTarget() const noexcept { return quantity != Quantity::kJacobian; }
  /// The number of derivatives of an expression of `parameters` parameters, and of its roots.
  std::size_t derivatives(std::size_t parameters) const noexcept {
    return by == DerivativesBy::kVariables ? columns : parameters;
  }
  std::size_t roots(std::size_t parameters) const noexcept;
  /// How many of these, the last ones, say which rows count.
  std::size_t counts() const noexcept { return !skips_invalid ? 0 : weighted ? 2 : 1; }
  /// How many before these depend only on the target.
  std::size_t targetTerms() const noexcept { return skips_invalid && isOfScaledLoss() ? kTargetSums : 0; }
  /// One more than the largest variable that roots read besides those of expressions.
  std::uint32_t variables() const noexcept { return readsTarget() ? columns + 1 + (weighted ? 1U : 0U) : 0; }

  /// Whether roots are the terms of a scaled loss.
  bool isOfScaledLoss() const noexcept {
    return loss.isScaled() && (quantity == Quantity::kLoss || quantity == Quantity::kGradient);
  }

  friend bool operator==(const Derivation&, const Derivation&) = default;
};

}  // namespace srjit
