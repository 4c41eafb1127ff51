#include "runtime/evaluation/loss_value.h"

#include <cmath>
#include <limits>

namespace srjit {
namespace {

/// What `apply` gives for the formula of a kind: from terms and their mean to the loss.
template <class Apply>
auto withFormula(LossKind kind, double target_variance, const Apply& apply) {
  const auto mean_alone = [](double, double mean) { return mean; };
  switch (kind) {
    case LossKind::kSse:
      return apply([](double terms, double) { return terms; });
    case LossKind::kMse:
    case LossKind::kMae:
      return apply(mean_alone);
    case LossKind::kRmse:
      return apply([](double, double mean) { return std::sqrt(mean); });
    case LossKind::kNmse:
      return apply([=](double, double mean) { return mean / target_variance; });
    case LossKind::kR2:
      return apply([=](double, double mean) { return 1 - mean / target_variance; });
  }
  return apply(mean_alone);
}

}  // namespace

LossSpec lossSpec(const LossOptions& options, bool weighted) {
  return {.term = options.kind == LossKind::kMae ? LossTerm::kAbsolute : LossTerm::kSquared,
          .weighted = weighted,
          .skip_invalid = options.nan != NanPolicy::kPropagate};
}

double lossValue(const LossSums& sums, double target_variance, const LossOptions& options) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (options.nan == NanPolicy::kReject && sums.valid < sums.rows) {
    return options.kind == LossKind::kR2 ? -kInfinity : kInfinity;
  }
  if (options.nan == NanPolicy::kSkip && sums.valid == 0) return std::numeric_limits<double>::quiet_NaN();
  return withFormula(options.kind, target_variance,
                     [&](const auto& formula) { return formula(sums.terms, sums.terms / sums.weights); });
}

void lossValues(std::span<const double> terms, double weights, double target_variance, LossKind kind,
                std::span<double> values) {
  withFormula(kind, target_variance, [&](const auto& formula) {
    for (std::size_t i = 0; i < terms.size(); ++i) values[i] = formula(terms[i], terms[i] / weights);
  });
}

std::uint64_t validRows(double terms, std::uint64_t rows) noexcept {
  return std::isfinite(terms) ? rows : Losses::kNotCounted;
}

}  // namespace srjit
