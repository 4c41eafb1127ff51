#include "runtime/evaluation/loss_value.h"

#include <cmath>
#include <limits>

namespace srjit {

LossSpec lossSpec(const LossOptions& options, bool weighted) {
  return {
      .term = infoOf(options.kind).term, .weighted = weighted, .skip_invalid = options.nan != NanPolicy::kPropagate};
}

double lossValue(const LossSums& sums, double target_variance, const LossOptions& options) {
  if (options.nan == NanPolicy::kReject && sums.valid < sums.rows) return infoOf(options.kind).worst;
  if (options.nan == NanPolicy::kSkip && sums.valid == 0) return std::numeric_limits<double>::quiet_NaN();
  return withLossFormula(options.kind, target_variance,
                         [&](const auto& formula) { return formula(sums.terms, sums.terms / sums.weights); });
}

void lossValues(std::span<const double> terms, double weights, double target_variance, LossKind kind,
                std::span<double> values) {
  withLossFormula(kind, target_variance, [&](const auto& formula) {
    for (std::size_t i = 0; i < terms.size(); ++i) values[i] = formula(terms[i], terms[i] / weights);
  });
}

std::uint64_t validRows(double terms, std::uint64_t rows) noexcept {
  return std::isfinite(terms) ? rows : Losses::kNotCounted;
}

}  // namespace srjit
