// A formula of a finalist while its constants are fitted and rounded, and the ways to change it.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "tools/search/link.h"
#include "tools/search/trees/arrays.h"

namespace srjit::search {

/// A tree with parameters p0, p1, ... each once and in their order, and what a fit made of them. Plain data.
struct Variant {
  std::vector<Token> tree;
  std::vector<double> values, errors;  ///< by parameter: its value, and its standard error once fitted
  double loss = std::numeric_limits<double>::infinity();

  /// Of a tree or formula with constants; those that `exponents` choose become the values.
  static Variant of(std::span<const Token> tokens, Exponents exponents = Exponents::kFitted);

  /// Applies `op` to the formula and another parameter.
  void append(double start, Op op);
  /// Applies g^-1 of the link.
  void undo(const Link& link);

  /// The same with numbers for some parameters: by parameter a number, or none. None if all parameters stay.
  std::optional<Variant> rounded(std::span<const std::optional<double>> numbers) const;

  /// The variants in which one of its operands takes the place of an operator.
  std::vector<Variant> shortened() const;
};

}  // namespace srjit::search
