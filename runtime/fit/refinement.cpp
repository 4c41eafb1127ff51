#include "runtime/fit/refinement.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/fit/least_squares.h"

namespace srjit::fit {
namespace {

/// Sines of columns with errors of a unit of the last place are right to this number of them.
constexpr double kSineError = 16;
/// With larger sines, seminormal equations keep some digits of a step.
constexpr double kLeastSine = 1e-5;
/// The rounding of terms, in last places. With more, large terms that cancel each other become smaller.
constexpr double kDampings[] = {0.5, 8, 128};
/// A loss is near the expected one up to this share: rounding adds no more.
constexpr double kNearLoss = 1e-3;
/// Another round is worth a pass if the last one lowered the loss by this share.
constexpr double kWorthwhile = 1e-9;
/// By how many times itself a full step may change a nonlinear parameter: LevenbergMarquardt.
constexpr double kLongestRefinement = 3;
/// Sums of equal weights in other orders differ by less.
constexpr double kSameWeights = 1e-6;

}  // namespace

std::size_t Refinement::offsetOf(const ParameterFit& fit, double ones) {
  for (std::size_t i = 0; i < fit.linear(); ++i) {
    if (std::fabs(fit.squaredLength(i) - ones) <= kSameWeights * ones) return i;
  }
  return fit.size();
}

void Refinement::begin() {
  loss_before_ = fit_->loss();
  candidates_.clear();
}

void Refinement::addConstant(double ones, double mean) {
  const std::size_t offset = offsetOf(*fit_, ones);
  if (offset == fit_->size()) return;
  Candidate constant{{fit_->parameters().begin(), fit_->parameters().end()}};
  for (std::size_t j = 0; j < fit_->linear(); ++j) constant.parameters[fit_->parameterAt(j)] = 0;
  constant.parameters[fit_->parameterAt(offset)] = mean;
  candidates_.push_back(std::move(constant));
}

// Columns in the fit's places, then r, in rows where all are finite, times the square root of the weight.
template <class T>
void Refinement::addLeastSquares(std::span<const T> roots, std::size_t rows, bool is_weighted, double divisor,
                                 double last_place) {
  const std::size_t count = fit_->size();
  const auto root = [&](std::size_t number, std::size_t row) { return roots[number * rows + row]; };
  std::vector<std::size_t> used;
  for (std::size_t row = 0; row < rows; ++row) {
    bool is_finite = true;
    for (std::size_t i = 0; i <= count; ++i) is_finite = is_finite && std::isfinite(root(i, row));
    if (is_finite) used.push_back(row);
  }
  std::vector<double> columns(used.size() * (count + 1));
  auto out = columns.begin();
  for (std::size_t place = 0; place <= count; ++place) {
    const std::size_t number = place == count ? 0 : 1 + fit_->parameterAt(place);
    // A column of zeros gets no step: the parameter stays at its bound.
    const bool is_held = place < count && fit_->isAtBound(place);
    for (const std::size_t row : used) {
      const double weight = is_weighted ? std::sqrt(static_cast<double>(root(count + 1, row))) : 1;
      *out++ = is_held ? 0 : weight * static_cast<double>(root(number, row));
    }
  }
  solve(columns, used.size(), divisor, last_place);
}
template void Refinement::addLeastSquares(std::span<const float>, std::size_t, bool, double, double);
template void Refinement::addLeastSquares(std::span<const double>, std::size_t, bool, double, double);

void Refinement::solve(std::span<double> columns, std::size_t rows, double divisor, double last_place) {
  const std::size_t count = fit_->size();
  if (rows < count) return;
  std::vector<double> gradient(count);
  for (std::size_t i = 0; i < count; ++i) {
    gradient[i] = exactDot(columns.subspan(i * rows, rows), columns.subspan(count * rows, rows));
  }
  ScaledQr qr;
  qr.factor(columns, rows, count, kSineError * last_place);
  if (qr.leastSine() > kLeastSine) qr.setGradient(gradient);
  rank_ = qr.rank();
  inverse_diagonal_.resize(count);
  std::vector<double> places(count), step(count);
  for (std::size_t i = 0; i < count; ++i) {
    places[i] = fit_->parameters()[fit_->parameterAt(i)];
    inverse_diagonal_[fit_->parameterAt(i)] = qr.inverseDiagonal(i);
  }
  const auto add = [&](std::size_t solved, double damping, bool is_more_exact) {
    std::ranges::fill(step, 0);
    qr.solve(places, damping * last_place, std::span(step).first(solved));
    Candidate candidate{
        {fit_->parameters().begin(), fit_->parameters().end()}, is_more_exact, qr.rest(solved) / divisor};
    bool is_too_long = false;
    double share = 1;  // of the step, up to the first bound
    const auto shareTo = [&](std::size_t i) { return (fit_->boundTowards(i, step[i]) - places[i]) / step[i]; };
    for (std::size_t i = 0; i < count; ++i) {
      if (fit_->isAtBound(i)) step[i] = 0;
      if (step[i] != 0) share = std::min(share, shareTo(i));
    }
    for (std::size_t i = 0; i < count; ++i) {
      double& number = candidate.parameters[fit_->parameterAt(i)];
      number = share < 1 && shareTo(i) == share ? fit_->boundTowards(i, step[i])
                                                : fit_->within(fit_->parameterAt(i), number + share * step[i]);
      const double size = std::fabs(places[i]);
      is_too_long =
          is_too_long || (i >= fit_->linear() && size > 0 && std::fabs(share * step[i]) > kLongestRefinement * size);
    }
    if (!is_too_long) candidates_.push_back(std::move(candidate));
  };
  if (fit_->linear() < count) add(count, kDampings[0], false);
  for (const double damping : kDampings) add(fit_->linear(), damping, damping == kDampings[0]);
}

const Refinement::Candidate* Refinement::candidate(std::size_t number) const {
  if (number >= candidates_.size()) return nullptr;
  const Candidate& one = candidates_[number];
  const bool is_good_enough = fit_->loss() <= (1 + kNearLoss) * one.expected;
  return number > 0 && !one.is_more_exact && is_good_enough ? nullptr : &one;
}

bool Refinement::isWorthMore() const { return fit_->loss() < (1 - kWorthwhile) * loss_before_; }

}  // namespace srjit::fit
