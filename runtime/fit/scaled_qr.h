// Least squares from the columns themselves, for those that are too near to combinations of each other for their normal
// equations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace srjit::fit {

/// The sum of x_i y_i, as if in twice the precision of a double (T. Ogita, S. M. Rump, S. Oishi, "Accurate Sum and Dot
/// Product", SIAM J. Sci. Comput. 26(6), 2005, algorithm 5.3).
double exactDot(std::span<const double> x, std::span<const double> y) noexcept;

/// Householder's QR factorization of a matrix J (G. H. Golub, "Numerical Methods for Solving Linear Least Squares
/// Problems", Numer. Math. 7, 1965), after its columns are scaled to length 1. The errors of its solutions grow with
/// the condition of J, those of normal equations with its square (A. Bjorck, "Numerical Methods for Least Squares
/// Problems", 1996, 2.2). An element of R on the diagonal is the sine of the angle between a column and the plane of
/// the columns before it. A column whose sine is not above the threshold counts as a combination of those: it is left
/// out, and its unknown is 0. In double, in one fixed order of operations. One object factors one matrix after another.
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
