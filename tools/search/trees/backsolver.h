// A mutation that solves a subtree for what it should be (T. Pawlak, B. Wieloch, K. Krawiec, "Semantic Backpropagation
// for Designing Search Operators in Genetic Programming", IEEE Transactions on Evolutionary Computation 19(3), 2015):
// the path from the root to the subtree is undone, operator by operator. Then the sum over a library, or a function of
// such a sum, that comes nearest to the wanted values takes its place. Rows count by what their errors there do to the
// tree.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "ir/numbers/random.h"
#include "tools/search/sums.h"
#include "tools/search/trees/arrays.h"

namespace srjit::search {

/// Values of all subtrees, by last token and row. `columns`: of `rows` rows each.
std::vector<double> subtreeValues(const TreeView& tree, std::span<const std::vector<double>> columns, std::size_t rows);

/// By row: the value of a subtree, and the tree's derivative by it there; 0 in rows where there is no such value.
struct Wanted {
  std::vector<double> values, slopes;
};

/// What the subtree that ends with token `last` should be for the tree to have the values `target`: where operators
/// have several inverses, the one next to the subtree's present value. None if an operator on the path has no inverse.
/// `values`: subtreeValues().
std::optional<Wanted> wantedOf(const TreeView& tree, std::size_t last, std::span<const double> values,
                               std::span<const double> target);

/// Of one frame. It uses few rows, and the numbers of the host, so its edits depend on no device. Immutable;
/// thread-safe.
class Backsolver {
 public:
  /// `setup` is borrowed. Throws the errors of the engine.
  Backsolver(const SearchSetup& setup, std::size_t frame);

  /// Solves a random subtree of `tree`. Subtrees of `others` are terms, too. The new tokens are written to `memory`,
  /// which the edit borrows. None if there is no such sum.
  std::optional<Edit> solve(const TreeView& tree, std::span<const TreeView> others, Random& random,
                            Trees& memory) const;

 private:
  std::vector<double> targetOf(std::span<const double> values, Random& random) const;
  std::optional<RowSet> linked(const Wanted& wanted, const Link& link, double sign) const;
  TermTable subtreesOf(std::span<const TreeView> trees) const;

  const Grammar* grammar_;
  bool is_scaled_;
  RowSet rows_;
  std::vector<TermTable> libraries_;  ///< of the shortest terms first; none if the grammar has no sums
  std::vector<const Link*> links_;    ///< whose inverses the grammar can write
};

}  // namespace srjit::search
