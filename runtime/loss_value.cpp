#include "runtime/loss_value.h"

#include <cmath>
#include <limits>

namespace srjit {

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
  const double mean = sums.terms / sums.weights;
  switch (options.kind) {
    case LossKind::kSse:
      return sums.terms;
    case LossKind::kMse:
    case LossKind::kMae:
      return mean;
    case LossKind::kRmse:
      return std::sqrt(mean);
    case LossKind::kNmse:
      return mean / target_variance;
    case LossKind::kR2:
      return 1 - mean / target_variance;
  }
  return mean;
}

}  // namespace srjit
