// What is computed of an expression instead of its value: derivatives, and sums over rows of which a loss, its gradient
// or normal equations consist. All of these are roots of the expression's graph.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ir/losses.h"
#include "passes/derivatives.h"

namespace srjit {

/// The roots of an expression f with target y, weight w and derivatives f_i, i < count.
enum class Quantity : std::uint8_t {
  kJacobian,         ///< f_0, f_1, ...
  kGradient,         ///< terms w l(f, y) and (w l') f_i, where l is the term of a loss and l' its derivative by f
  kNormalEquations,  ///< terms w (r r), (w r) f_i, and (w f_i) f_j for i <= j, by i, then j, where r = y - f
};

/// What is derived of every expression of a program. The target is read as variable `columns`, weights as the one after
/// it.
struct Derivation {
  Quantity quantity = Quantity::kJacobian;
  DerivativesBy by = DerivativesBy::kParameters;
  std::uint32_t columns = 0;  ///< variables of the data
  /// For sums:
  LossTerm term{};        ///< kGradient
  bool weighted = false;  ///< w is 1 otherwise
  /// Terms are 0 in rows where f or an f_i is not finite. A root follows that is 1 in the other rows, and with weights
  /// another that is w there.
  bool skips_invalid = false;

  /// The number of derivatives of an expression of so many parameters, and of its roots.
  std::size_t derivatives(std::size_t parameters) const noexcept {
    return by == DerivativesBy::kVariables ? columns : parameters;
  }
  std::size_t roots(std::size_t parameters) const noexcept;
  /// How many of these, the last ones, say which rows count.
  std::size_t counts() const noexcept { return !skips_invalid ? 0 : weighted ? 2 : 1; }
  /// One more than the largest variable that roots read besides those of expressions.
  std::uint32_t variables() const noexcept {
    return quantity == Quantity::kJacobian ? 0 : columns + 1 + (weighted ? 1U : 0U);
  }

  friend bool operator==(const Derivation&, const Derivation&) = default;
};

}  // namespace srjit
