#include "runtime/fit/least_squares.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace srjit::fit {
namespace {

double dot(std::span<const double> x, std::span<const double> y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

double lengthOf(std::span<const double> x) { return std::sqrt(dot(x, x)); }

/// Reflects `x` by I - 2 v v' / v'v, where `square` is v'v.
void reflect(std::span<const double> v, double square, std::span<double> x) {
  const double share = 2 * dot(v, x) / square;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] -= share * v[i];
}

/// The step of Householder's method for column `j` of `columns`, whose elements from `first` on have this length:
/// reflects it and the columns up to `last`. Returns the element of the diagonal. The reflection stays in the column.
double reflectFrom(std::span<double> columns, std::size_t rows, std::size_t j, std::size_t first, std::size_t last,
                   double length) {
  const std::span<double> v = columns.subspan(j * rows + first, rows - first);
  const double diagonal = v[0] > 0 ? -length : length;
  v[0] -= diagonal;
  const double square = dot(v, v);
  for (std::size_t k = j + 1; k <= last; ++k) reflect(v, square, columns.subspan(k * rows + first, rows - first));
  return diagonal;
}

}  // namespace

void ScaledCholesky::resize(std::size_t size) {
  factor_.resize(triangleSize(size));
  scales_.resize(size);
  dependent_.resize(size);
}

void ScaledCholesky::factor(std::span<const double> gram, std::span<const double> added, double threshold) {
  rank_ = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    const double square = gram[triangleIndex(i, i)];
    scales_[i] = square > 0 ? 1 / std::sqrt(square) : 0;
    double* const row = &factor_[triangleIndex(i, 0)];
    // Row by row: element (i, j) needs only rows up to i.
    for (std::size_t j = 0; j < i; ++j) {
      const double* const other = &factor_[triangleIndex(j, 0)];
      double value = gram[triangleIndex(i, j)] * scales_[i] * scales_[j];
      for (std::size_t m = 0; m < j; ++m) value -= row[m] * other[m];
      row[j] = isDependent(j) ? 0 : value / other[j];
    }
    double pivot = square * scales_[i] * scales_[i] + added[i] * scales_[i] * scales_[i];
    for (std::size_t m = 0; m < i; ++m) pivot -= row[m] * row[m];
    const bool is_independent = pivot > threshold;
    dependent_[i] = is_independent ? 0 : 1;
    row[i] = is_independent ? std::sqrt(pivot) : 0;
    rank_ += is_independent ? 1 : 0;
  }
}

double ScaledCholesky::remainder(std::span<const double> gram, std::size_t j, std::size_t count) const {
  // The pivot is a sum without cancellation of what the columns between leave.
  double share = 0;
  for (std::size_t m = count; m <= j; ++m) {
    const double element = factor_[triangleIndex(j, m)];
    share += element * element;
  }
  return share * gram[triangleIndex(j, j)];
}

void ScaledCholesky::forward(std::span<const double> right, std::span<double> solution) const {
  for (std::size_t i = 0; i < size(); ++i) {
    const double* const row = &factor_[triangleIndex(i, 0)];
    double value = right[i] * scales_[i];
    for (std::size_t m = 0; m < i; ++m) value -= row[m] * solution[m];
    solution[i] = isDependent(i) ? 0 : value / row[i];
  }
}

void ScaledCholesky::backward(std::span<double> solution) const {
  for (std::size_t i = solution.size(); i-- > 0;) {
    double value = solution[i];
    for (std::size_t m = i + 1; m < solution.size(); ++m) value -= factor_[triangleIndex(m, i)] * solution[m];
    solution[i] = isDependent(i) ? 0 : value / factor_[triangleIndex(i, i)];
  }
  for (std::size_t i = 0; i < solution.size(); ++i) solution[i] *= scales_[i];
}

double ScaledCholesky::inverseDiagonal(std::size_t j, std::span<double> work) const {
  if (isDependent(j)) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (std::size_t i = j; i < size(); ++i) {
    const double* const row = &factor_[triangleIndex(i, 0)];
    double value = i == j ? scales_[j] : 0;
    for (std::size_t m = j; m < i; ++m) value -= row[m] * work[m];
    work[i] = isDependent(i) ? 0 : value / row[i];
    sum += work[i] * work[i];
  }
  return sum;
}

double exactDot(std::span<const double> x, std::span<const double> y) noexcept {
  double sum = 0, error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double product = x[i] * y[i], before = sum;
    sum += product;
    const double added = sum - before;
    error += (before - (sum - added)) + (product - added) + std::fma(x[i], y[i], -product);
  }
  return sum + error;
}

void ScaledQr::factor(std::span<double> columns, std::size_t rows, std::size_t count, double threshold) {
  lengths_.resize(count);
  places_.assign(count, kNoPlace);
  triangle_.assign(count * count, 0);
  right_.assign(count, 0);
  rank_ = 0;
  const std::span<double> b = columns.subspan(count * rows, rows);
  for (std::size_t j = 0; j < count; ++j) {
    const std::span<double> column = columns.subspan(j * rows, rows);
    lengths_[j] = lengthOf(column);
    if (lengths_[j] == 0) continue;
    for (double& element : column) element /= lengths_[j];
  }
  for (std::size_t j = 0; j < count; ++j) {
    const std::span<double> column = columns.subspan(j * rows, rows);
    // Reflections of the columns before have been applied to this one.
    std::copy_n(column.begin(), rank_, triangle_.begin() + static_cast<std::ptrdiff_t>(j * count));
    const std::span<double> rest = column.subspan(rank_);
    const double sine = lengthOf(rest);
    if (!(sine > threshold) || rest.empty()) continue;
    triangle_[j * count + rank_] = reflectFrom(columns, rows, j, rank_, count, sine);
    places_[j] = rank_++;
  }
  std::copy_n(b.begin(), rank_, right_.begin());
  rest_ = dot(b.subspan(rank_), b.subspan(rank_));
}

void ScaledQr::setGradient(std::span<const double> gradient) {
  for (std::size_t j = 0; j < size(); ++j) {
    if (isDependent(j)) continue;
    double value = gradient[j] / lengths_[j];
    for (std::size_t i = 0; i < places_[j]; ++i) value -= r(i, j) * right_[i];
    right_[places_[j]] = value / r(places_[j], j);
  }
}

double ScaledQr::leastSine() const noexcept {
  double least = 1;
  for (std::size_t j = 0; j < size(); ++j) {
    if (!isDependent(j)) least = std::min(least, std::fabs(r(places_[j], j)));
  }
  return least;
}

double ScaledQr::rest(std::size_t count) const noexcept {
  double sum = rest_;
  for (std::size_t j = count; j < size(); ++j) {
    if (!isDependent(j)) sum += right_[places_[j]] * right_[places_[j]];
  }
  return sum;
}

void ScaledQr::solve(std::span<const double> p, double damping, std::span<double> d) {
  std::ranges::fill(d, 0);
  std::vector<std::size_t> used;
  std::vector<double> rest(right_);
  for (std::size_t j = 0; j < d.size(); ++j) {
    if (!isDependent(j)) {
      used.push_back(j);
      continue;
    }
    d[j] = -p[j];
    for (std::size_t i = 0; i < used.size(); ++i) rest[i] += lengths_[j] * p[j] * r(i, j);
  }
  // R above a diagonal of `damping`, and what both are to approximate.
  const std::size_t count = used.size(), rows = 2 * count;
  work_.assign(rows * (count + 1), 0);
  const std::span<double> right = std::span(work_).subspan(rows * count, rows);
  for (std::size_t j = 0; j < count; ++j) {
    for (std::size_t i = 0; i <= j; ++i) work_[j * rows + i] = r(i, used[j]);
    work_[j * rows + count + j] = damping;
    right[j] = rest[j];
    right[count + j] = -damping * lengths_[used[j]] * p[used[j]];
  }
  for (std::size_t j = 0; j < count; ++j) {
    double& element = work_[j * rows + j];
    element = reflectFrom(work_, rows, j, j, count, lengthOf(std::span(work_).subspan(j * rows + j, rows - j)));
  }
  for (std::size_t j = count; j-- > 0;) {
    double value = right[j];
    for (std::size_t k = j + 1; k < count; ++k) value -= work_[k * rows + j] * d[used[k]];
    d[used[j]] = value / work_[j * rows + j];
  }
  for (const std::size_t j : used) d[j] /= lengths_[j];
}

double ScaledQr::inverseDiagonal(std::size_t j) {
  if (isDependent(j)) return std::numeric_limits<double>::quiet_NaN();
  // (R'R)^-1 = X X' with X = R^-1, whose row of column j follows from e_j' = x' R.
  work_.assign(rank_, 0);
  double sum = 0;
  for (std::size_t k = j; k < size(); ++k) {
    if (isDependent(k)) continue;
    double value = k == j ? 1 : 0;
    for (std::size_t place = places_[j]; place < places_[k]; ++place) value -= work_[place] * r(place, k);
    work_[places_[k]] = value / r(places_[k], k);
    sum += work_[places_[k]] * work_[places_[k]];
  }
  return sum / (lengths_[j] * lengths_[j]);
}

}  // namespace srjit::fit
