// Which parameters of an expression enter linearly: what variable projection needs (G. H. Golub, V. Pereyra, "The
// Differentiation of Pseudo-Inverses and Nonlinear Least Squares Problems Whose Variables Separate", SIAM J. Numer.
// Anal. 10(2), 1973).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "passes/dag.h"
#include "passes/root_members.h"

namespace srjit {

/// Finds them in derivatives. Keeps its working memory between calls. Not thread-safe.
class LinearParameters {
 public:
  /// Parameters in which an expression is jointly affine, whatever the others are: ascending. `derivatives` are the
  /// nodes of its derivatives by each of its parameters (Deriver::differentiate()). In ascending order, a parameter
  /// joins the set if no derivative by a member, or by itself, contains a member or itself. So the set cannot be
  /// extended, but another may be larger. What cancels in numbers but not in the graph counts as contained. A parameter
  /// with derivative 0 does not join: it has no effect, or it enters through a step function. Takes time and memory in
  /// nodes times parameters /
  /// 64. Valid until the next call.
  std::span<const std::uint32_t> find(const Dag& dag, std::span<const NodeId> derivatives);

 private:
  using Word = std::uint64_t;
  void findContained(const Dag& dag, std::span<const NodeId> derivatives);
  std::span<const Word> containedIn(NodeId id) const;

  RootMembers members_;
  std::size_t words_ = 0;              ///< of a set
  std::vector<std::uint32_t> places_;  ///< by node: its number among the members
  std::vector<Word> contained_;        ///< by member: the parameters that it contains, one bit each
  std::vector<Word> excluded_;         ///< those in derivatives by parameters found
  std::vector<Word> found_set_;
  std::vector<std::uint32_t> found_;
};

}  // namespace srjit
