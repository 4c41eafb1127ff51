// Which parameters of an expression enter linearly, for variable projection (G. H. Golub, V. Pereyra, "The
// Differentiation of Pseudo-Inverses and Nonlinear Least Squares Problems Whose Variables Separate", SIAM J. Numer.
// Anal. 10(2), 1973).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/expression_view.h"

namespace srjit {

/// Finds them in the tokens, without a graph and without derivatives: the reverse sweep of
/// passes/gradient/differentiate.h over sets of parameters in place of derivatives. Keeps its working memory between
/// calls. Not thread-safe.
class LinearParameters {
 public:
  /// The parameters in which a valid expression is jointly affine, but for steps, whatever the others are: ascending.
  /// In ascending order, a parameter joins the set if no derivative by a member, or by itself, contains a member or
  /// itself. A derivative contains what the partial derivatives of ops.def contain, on all ways from the root to the
  /// parameter: what cancels counts as contained, and no rule is applied, so p0 in x0 / (x1 / p0) does not join. The
  /// set cannot be extended, but another may be larger. A parameter without such a way does not join: the expression
  /// lacks it, or it enters through a step function. One whose derivative is a product with 0 joins. Takes time and
  /// memory in tokens times the parameters that occur / 64. Valid until the next call.
  std::span<const std::uint32_t> find(const ExpressionView& tokens);

 private:
  using Word = std::uint64_t;

  void collect(std::span<const std::int32_t> codes);
  void sweep(std::span<const std::int32_t> codes);
  void choose();
  /// Which of the parameters that occur this is.
  std::size_t numberOf(std::int32_t code) const;
  /// Number `index` of the sets in one of the lists below.
  std::span<Word> setIn(std::vector<Word>& sets, std::size_t index) const {
    return std::span(sets).subspan(index * words_, words_);
  }

  std::vector<std::uint32_t> parameters_;  ///< that occur, ascending; all other members have their numbers here
  std::size_t words_ = 0;                  ///< of a set of parameters, one bit each
  std::vector<std::uint32_t> begins_;      ///< by token: the first of its subtree
  std::vector<Word> below_;                ///< by token: the parameters of its subtree
  std::vector<Word> above_;                ///< by token: those that the root's derivative by it contains
  std::vector<std::uint8_t> reached_;      ///< by token: whether the derivative by it is not 0 everywhere
  std::vector<Word> contained_;            ///< by parameter: those that the root's derivative by it contains
  std::vector<std::uint8_t> enters_;       ///< by parameter: whether one of its tokens is reached
  std::vector<Word> excluded_, found_set_;
  std::vector<std::uint32_t> found_;
};

}  // namespace srjit
