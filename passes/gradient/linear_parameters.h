// Which parameters of an expression enter linearly, for variable projection (G. H. Golub, V. Pereyra, "The
// Differentiation of Pseudo-Inverses and Nonlinear Least Squares Problems Whose Variables Separate", SIAM J. Numer.
// Anal. 10(2), 1973).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "passes/members.h"

namespace srjit {

/// Finds them without making derivatives: the reverse sweep of passes/gradient/differentiate.h over sets of parameters
/// in place of derivatives. Keeps its working memory between calls. Not thread-safe.
class LinearParameters {
 public:
  /// Of the `parameters` parameters of an expression, those in which it is jointly affine, whatever the others are:
  /// ascending. In ascending order, a parameter joins the set if no derivative by a member, or by itself, contains a
  /// member or itself. A derivative contains what the partial derivatives of ops.def contain, on all ways from the root
  /// to the parameter: what cancels counts as contained. So the set cannot be extended, but another may be larger. A
  /// parameter without such a way does not join: the expression lacks it, or it enters through a step function. One
  /// whose derivative is a product with 0 joins. `graph` has one root. Takes time and memory in nodes times parameters
  /// / 64. Valid until the next call.
  std::span<const std::uint32_t> find(const ExpressionGraph& graph, std::uint32_t parameters);

 private:
  using Word = std::uint64_t;

  void collectParameters(const ExpressionGraph& graph, std::uint32_t parameters);
  void sweep(const ExpressionGraph& graph);
  void choose(std::uint32_t parameters);
  /// What a node's set is in one of the two lists below.
  std::span<Word> setIn(std::vector<Word>& sets, NodeId id) const;

  std::size_t words_ = 0;              ///< of a set of parameters, one bit each
  std::vector<std::uint32_t> places_;  ///< by node: its number among the members; stale but for these
  std::vector<Word> below_;            ///< by member: the parameters that it contains
  std::vector<Word> above_;            ///< by member: those that the root's derivative by it contains
  std::vector<std::uint8_t> reached_;  ///< by member: whether the derivative by it is not 0 everywhere
  std::vector<std::uint32_t> own_;     ///< by parameter: its number among the members, or kNoMember
  std::vector<Word> excluded_, found_set_;
  std::vector<std::uint32_t> found_;
};

}  // namespace srjit
