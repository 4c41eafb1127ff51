// Better parameters for a fit that has ended: the best constant, and least squares of the columns themselves.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/fit/progress.h"

namespace srjit::fit {

/// What to try for one fit, and what the columns tell of it. Not thread-safe; the fit must outlive it.
class Refinement {
 public:
  struct Candidate {
    std::vector<double> parameters;
    bool is_more_exact = false;  ///< LevenbergMarquardt::tryCandidate()
    double expected = 0;         ///< the loss, but for the rounding of predictions
  };

  explicit Refinement(const ParameterFit& fit) : fit_(&fit), loss_before_(fit.loss()) {}

  /// The place of a linear parameter whose column has `ones`, the squared length of a column of ones, for its own;
  /// size() if there is none. The length does not tell an offset that is added from one that is subtracted.
  static std::size_t offsetOf(const ParameterFit& fit, double ones);

  /// Begins another round, without candidates.
  void begin();
  /// Adds the constant `mean`, if the fit has an offset: with other linear parameters 0.
  void addConstant(double ones, double mean);
  /// Adds solutions of least squares, or how far the bounds allow to go there; parameters at a bound stay. `roots` are
  /// those of Quantity::kTangent at fit.parameters(), one after another, each of `rows` rows; with `is_weighted` the
  /// last one is the weight. Rows that are not finite are left out. Losses are `divisor` times smaller than sums;
  /// `last_place` is that of the precision of the roots.
  template <class T>
  void addLeastSquares(std::span<const T> roots, std::size_t rows, bool is_weighted, double divisor, double last_place);

  std::size_t size() const noexcept { return candidates_.size(); }
  /// The candidate to try, or null: unless it is the first or more exact, a loss near the expected one is good enough.
  const Candidate* candidate(std::size_t number) const;
  /// Whether the round lowered the loss enough for another one.
  bool isWorthMore() const;

  /// Of the last least squares: the rank of J, and the diagonal of (J'J)^-1 by parameter; empty before the first.
  std::size_t rank() const noexcept { return rank_; }
  const std::vector<double>& inverseDiagonal() const noexcept { return inverse_diagonal_; }

 private:
  void solve(std::span<double> columns, std::size_t rows, double divisor, double last_place);

  const ParameterFit* fit_;
  double loss_before_;
  std::vector<Candidate> candidates_ = {};
  std::size_t rank_ = 0;
  std::vector<double> inverse_diagonal_ = {};
};

}  // namespace srjit::fit
