#include "tools/search/formulas/evidence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "tools/search/formulas/rounding.h"

namespace srjit::search {
namespace {

constexpr double kTokenShare = 0.65;  // of log(symbols), for a token

/// Nats of a constant.
double lengthOf(const WeighedConstant& constant) {
  const double digits = digitsOf(constant.value) * std::numbers::ln10;
  const double precision = std::log(std::fabs(constant.value) / constant.error);
  const bool is_known = constant.is_fitted && std::isfinite(constant.error) && constant.error > 0;
  return std::max(is_known ? std::min(precision, digits) : digits, std::numbers::ln2);
}

}  // namespace

std::optional<Likelihood> likelihoodOf(const LossOptions& loss) noexcept {
  if (loss.custom) return {};
  switch (loss.kind) {
    case LossKind::kSse:
    case LossKind::kMse:
    case LossKind::kNmse:
    case LossKind::kHuber:
      return Likelihood{.logs = 0.5, .freedom = 0.5};
    case LossKind::kRmse:
      return Likelihood{.logs = 1, .freedom = 0.5};
    case LossKind::kMae:
    case LossKind::kQuantile:
      return Likelihood{.logs = 1, .freedom = 1};
    case LossKind::kLogLoss:
      return Likelihood{.nats = 1};
    case LossKind::kPoisson:  // a deviance
      return Likelihood{.nats = 0.5};
    default:
      return {};
  }
}

void weigh(Formula& formula, const Likelihood& likelihood, std::span<const WeighedConstant> constants,
           const EvidenceTerms& terms) {
  constexpr double kLeast = std::numeric_limits<double>::min();
  const double loss = std::max({formula.loss, terms.floor, kLeast});
  const auto fitted = static_cast<double>(std::ranges::count_if(constants, &WeighedConstant::is_fitted));
  double data = likelihood.nats * formula.loss;
  if (likelihood.logs > 0) data += likelihood.logs * std::log(loss);
  formula.bic = 2 * terms.rows * data + fitted * std::log(terms.rows);
  if (fitted >= terms.rows) {
    formula.evidence = -std::numeric_limits<double>::infinity();
    return;
  }
  data += likelihood.freedom * std::log(terms.rows / (terms.rows - fitted));
  double length = kTokenShare * static_cast<double>(formula.expression.size()) * std::log(terms.symbols);
  for (const WeighedConstant& constant : constants) length += lengthOf(constant);
  formula.evidence = -(terms.rows * data + length);
}

}  // namespace srjit::search
