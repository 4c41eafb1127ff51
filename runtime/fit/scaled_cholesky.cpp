#include "runtime/fit/scaled_cholesky.h"

#include <cmath>
#include <limits>

namespace srjit::fit {

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

}  // namespace srjit::fit
