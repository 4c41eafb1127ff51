// Small normal equations, solved in one fixed order of operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace srjit::fit {

/// Where the element (i, j), j <= i, of a symmetric matrix is: the lower triangle by rows.
constexpr std::size_t triangleIndex(std::size_t i, std::size_t j) noexcept { return i * (i + 1) / 2 + j; }
constexpr std::size_t triangleSize(std::size_t size) noexcept { return triangleIndex(size, 0); }

/// The Cholesky factor L of the symmetric matrix J'J + diag(added), after the columns of J are scaled to length 1 (A.
/// van der Sluis, "Condition Numbers and Equilibration of Matrices", Numer. Math. 14, 1969). Without `added` a pivot is
/// the squared sine of the angle between a column and the plane of the columns before it, and does not depend on units.
/// A column whose pivot is not above the threshold counts as a combination of those before it, as in J. H. Goodnight,
/// "A Tutorial on the SWEEP Operator", The American Statistician 33(3), 1979: it is left out, and its unknown is 0.
/// One object factors one matrix after another. Allocates only in resize().
class ScaledCholesky {
 public:
  /// For a matrix of `size` columns, which factor() reads next.
  void resize(std::size_t size);

  /// `gram` is J'J in the order of triangleIndex(), finite; `added` is one number for each column, 0 or more.
  void factor(std::span<const double> gram, std::span<const double> added, double threshold);

  std::size_t size() const noexcept { return scales_.size(); }
  bool isDependent(std::size_t j) const noexcept { return dependent_[j] != 0; }
  std::size_t rank() const noexcept { return rank_; }
  /// 0 of a dependent column.
  double pivot(std::size_t j) const noexcept {
    const double element = factor_[triangleIndex(j, j)];
    return element * element;
  }
  /// The squared length of column j of J, orthogonal to the first `count` columns: the diagonal of a Schur complement.
  /// `added` must have been 0.
  double remainder(std::span<const double> gram, std::size_t j, std::size_t count) const;

  /// `solution` = L^-1 of the scaled right side. The squared length of its first elements is by how much least squares
  /// in the first columns lowers the loss.
  void forward(std::span<const double> right, std::span<double> solution) const;
  /// From forward()'s solution to the unknowns, in place: of the first `solution.size()` columns.
  void backward(std::span<double> solution) const;
  /// Element (j, j) of the inverse. NaN if column j is dependent. `work` has size() numbers.
  double inverseDiagonal(std::size_t j, std::span<double> work) const;

 private:
  std::vector<double> factor_;  ///< L
  std::vector<double> scales_;  ///< by column: 1 / length
  std::vector<std::uint8_t> dependent_;
  std::size_t rank_ = 0;
};

}  // namespace srjit::fit
