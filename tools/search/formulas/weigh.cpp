// What a Polisher says of formulas beside their losses: evidence, and whether they are sound.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "ir/reference.h"
#include "tools/search/formulas/evidence.h"
#include "tools/search/formulas/polish.h"

namespace srjit::search {
namespace {

constexpr double kLawLeaves = 0.01, kLawRows = 100;  // the share of the variance, and rows
constexpr double kMostBounded = 1e13;                // of a loss, by that of the target's own rounding
constexpr std::size_t kBoundedRows = 1024;
constexpr double kTypicalError = 1e3;

}  // namespace

/// Sets the loss that is rounding: at some rows, bounds of the errors and of the target's own rounding.
void Polisher::boundRounding(Formula& formula) const {
  if (!(formula.loss <= kMostBounded * rounding_)) return;
  checkStop();
  const RowSet& rows = *fitted_rows_;
  const auto [least, most] = std::ranges::minmax(rows.target);
  const double size = std::max(-least, most);  // of any magnitude, whose square f64 may lack
  double errors = 0, targets = 0;
  std::vector<double> row(rows.columns.size());
  const std::size_t step = rows.size() / (kBoundedRows + 1) + 1;
  for (std::size_t i = 0; i < rows.size(); i += step) {
    std::ranges::transform(rows.columns, row.begin(), [&](const std::vector<double>& column) { return column[i]; });
    const double target = kRounding * std::fabs(rows.target[i]) / size;
    const double error = target + evaluateBounded(formula.expression, row, {}, {}).error / size;
    errors += rows.weightOf(i) * error * error;
    targets += rows.weightOf(i) * target * target;
  }
  const double ratio = errors / targets;
  if (std::isnan(ratio)) return;
  formula.rounding = rounding_ * (rules_.loss.kind == LossKind::kRmse ? std::sqrt(ratio) : ratio);
}

/// Sets evidence, BIC and R2 of formulas whose losses are known. The constants' errors come from one pass of a fit.
void Polisher::weigh(std::span<Formula> formulas, double floor) const {
  if (formulas.empty()) return;
  std::vector<Expression> expressions;
  std::vector<Variant> variants;
  for (const Formula& formula : formulas) {
    expressions.push_back(formula.expression);
    variants.push_back(Variant::of(formula.expression.tokens(), Exponents::kWholeKept));
  }
  const bool is_share = !rules_.loss.custom && rules_.loss.kind == LossKind::kNmse;
  const Losses r2 =
      is_share ? Losses{} : engine_.loss(engine_.compile(expressions), *searched_, {}, {.kind = LossKind::kR2}).value();
  for (std::size_t i = 0; i < formulas.size(); ++i) {
    const double share = is_share ? 1 - formulas[i].loss : r2.values[i];
    formulas[i].r2 = std::isfinite(share) ? share : std::numeric_limits<double>::quiet_NaN();
  }
  const std::optional<Likelihood> likelihood = likelihoodOf(rules_.loss);
  if (!likelihood) return;
  EvidenceTerms terms{.rows = rows_, .variables = rules_.grammar.variables()};
  // Errors shrink with the root of the rows.
  const double shrinking = std::sqrt(std::min(1.0, static_cast<double>(fitted_rows_->size()) / rows_));
  std::vector<Variant> fits = variants;
  fit(fits, 1);
  for (std::size_t i = 0; i < formulas.size(); ++i) {
    std::vector<WeighedConstant> constants;
    for (std::size_t p = 0; p < variants[i].values.size(); ++p) {
      constants.push_back({variants[i].values[p], fits[i].errors[p] * shrinking});
    }
    for (const Token& token : variants[i].tree) {
      if (token.kind == Token::Kind::kConstant) constants.push_back({.value = token.value, .is_fitted = false});
    }
    const double own = std::min(formulas[i].rounding, floor);
    terms.floor = std::isfinite(rounding_) ? std::max(rounding_, own) : floor;
    search::weigh(formulas[i], *likelihood, constants, terms);
  }
}

Front Polisher::weighed(const Front& front) const {
  std::vector<Formula> formulas = front.formulas();
  for (Formula& formula : formulas) boundRounding(formula);
  weigh(formulas, front.floor());
  Front result = front.emptied();
  for (Formula& formula : formulas) result.add(std::move(formula));
  return result;
}

bool Polisher::isTypical(const Formula& formula, double share) const {
  const std::vector<double>& target = fitted_rows_->target;
  std::vector<double> values(target.size());
  engine_.evaluate(engine_.compile(std::span(&formula.expression, 1)), *fitted_, {}, std::span<double>(values)).value();
  std::size_t right = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double most = kTypicalError * std::sqrt(share) * std::fabs(target[i]);
    right += target[i] == 0 || std::fabs(values[i] - target[i]) <= most ? 1 : 0;
  }
  return 2 * right >= values.size();
}

bool Polisher::isSound(const Formula& formula, double floor) const {
  const bool is_law = formula.loss <= floor || (formula.r2 >= 1 - kLawLeaves && rows_ >= kLawRows);
  return is_law || near_->isSound(formula.expression);
}

}  // namespace srjit::search
