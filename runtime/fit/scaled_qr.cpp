#include "runtime/fit/scaled_qr.h"

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

}  // namespace

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
    const double diagonal = rest[0] > 0 ? -sine : sine;
    rest[0] -= diagonal;
    const double square = dot(rest, rest);
    for (std::size_t k = j + 1; k <= count; ++k) reflect(rest, square, columns.subspan(k * rows + rank_, rows - rank_));
    triangle_[j * count + rank_] = diagonal;
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
    const std::span<double> column = std::span(work_).subspan(j * rows + j, rows - j);
    const double length = lengthOf(column), diagonal = column[0] > 0 ? -length : length;
    column[0] -= diagonal;
    const double square = dot(column, column);
    for (std::size_t k = j + 1; k <= count; ++k) {
      reflect(column, square, std::span(work_).subspan(k * rows + j, rows - j));
    }
    column[0] = diagonal;
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
