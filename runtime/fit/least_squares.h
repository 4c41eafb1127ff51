// Least squares in one fixed order of operations: by normal equations, and from the columns themselves, for those that
// are too near to combinations of each other.
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

/// The sum of x_i y_i, as if in twice the precision of a double (T. Ogita, S. M. Rump, S. Oishi, "Accurate Sum and Dot
/// Product", SIAM J. Sci. Comput. 26(6), 2005, algorithm 5.3).
double exactDot(std::span<const double> x, std::span<const double> y) noexcept;

/// Householder's QR factorization of a matrix J (G. H. Golub, "Numerical Methods for Solving Linear Least Squares
/// Problems", Numer. Math. 7, 1965), after its columns are scaled to length 1. The errors of its solutions grow with
/// the condition of J, those of normal equations with its square (A. Bjorck, "Numerical Methods for Least Squares
/// Problems", 1996, 2.2). An element of R on the diagonal is the sine of the angle between a column and the plane of
/// the columns before it. A column whose sine is not above the threshold counts as a combination of those: it is left
/// out, and its unknown is 0. One object factors one matrix after another.
/// Not thread-safe.
class ScaledQr {
 public:
  /// `columns` has `count` columns of `rows` numbers each, behind one another, and then the right side b. All are
  /// finite, with squares that are, and are overwritten. Throws std::bad_alloc.
  void factor(std::span<double> columns, std::size_t rows, std::size_t count, double threshold);

  std::size_t size() const noexcept { return lengths_.size(); }
  std::size_t rank() const noexcept { return rank_; }
  bool isDependent(std::size_t j) const noexcept { return places_[j] == kNoPlace; }
  /// Takes J'b, which is more exact than Q'b if b is nearly orthogonal to J and no sine is near 0 (the corrected
  /// seminormal equations of A. Bjorck, Linear Algebra Appl. 88/89, 1987).
  void setGradient(std::span<const double> gradient);
  /// The least sine of a column that is not left out.
  double leastSine() const noexcept;

  /// The squared length of b less its best approximation by the first `count` columns.
  double rest(std::size_t count) const noexcept;

  /// The d that makes |b - J d|^2 + `damping`^2 times the sum of (|J_j| (p_j + d_j))^2 least, over the first d.size()
  /// columns; others stay as they are. `p` has as many numbers; where a column is left out, p_j + d_j is 0. Where
  /// predictions are rounded by `damping` of each of their terms, that sum is what rounding adds to the squared
  /// residuals, so no term becomes larger than it pays. Throws std::bad_alloc.
  void solve(std::span<const double> p, double damping, std::span<double> d);

  /// Element (j, j) of the inverse of J'J. NaN if column j is dependent. Throws std::bad_alloc.
  double inverseDiagonal(std::size_t j);

 private:
  static constexpr std::size_t kNoPlace = ~std::size_t{0};
  /// R by columns: that of column j has size() numbers.
  double r(std::size_t place, std::size_t j) const noexcept { return triangle_[j * size() + place]; }

  std::vector<double> lengths_;      ///< of the columns
  std::vector<std::size_t> places_;  ///< by column: its row of the diagonal of R
  std::vector<double> triangle_;
  std::vector<double> right_;  ///< Q'b: size() numbers
  double rest_ = 0;            ///< of all columns
  std::size_t rank_ = 0;
  std::vector<double> work_;
};

}  // namespace srjit::fit
