#include "tools/search/polish.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "passes/simplify_expression.h"
#include "tools/search/rounding.h"
#include "tools/search/screen.h"

namespace srjit::search {
namespace {

constexpr unsigned kFitPasses = 40, kTrialPasses = 12;
constexpr double kStandardErrors[] = {3, 1, 0.3, 0.1};  // within so many of them a constant may be rounded
constexpr double kLeastTolerance = 1e-7;                // and within this share of it
constexpr double kMostTolerance = 1e-2;
constexpr double kHarm = 1.01;  // a rounded formula's loss may be so many times the fitted one's
constexpr double kLeastDeterminant = 1e-12;

/// The best a and b of a + b f by least squares, and the best b of b f.
struct Scaling {
  double offset = 0, slope = 1, factor = 1;
};

Scaling bestScaling(std::span<const double> predictions, std::span<const double> target) {
  double f_mean = 0, g_mean = 0;
  const auto count = static_cast<double>(target.size());
  for (std::size_t r = 0; r < target.size(); ++r) {
    f_mean += predictions[r] / count;
    g_mean += target[r] / count;
  }
  double ff = 0, fg = 0, centred_ff = 0, centred_fg = 0;
  for (std::size_t r = 0; r < target.size(); ++r) {
    const double f = predictions[r] - f_mean;
    ff += predictions[r] * predictions[r];
    fg += predictions[r] * target[r];
    centred_ff += f * f;
    centred_fg += f * (target[r] - g_mean);
  }
  Scaling scaling;
  if (ff > 0) scaling.factor = fg / ff;
  if (centred_ff > kLeastDeterminant * ff) scaling.slope = centred_fg / centred_ff;
  scaling.offset = g_mean - scaling.slope * f_mean;
  return scaling;
}

Tree undoLink(Tree tokens, const Link& link) {
  for (const Op op : link.inverse) tokens.push_back(Token::operation(op));
  return tokens;
}

}  // namespace

/// A formula with parameters, and what a fit made of them.
struct Polisher::Variant {
  Tree tree;
  std::vector<double> values, errors;
  double loss = std::numeric_limits<double>::infinity();

  /// Applies `op` to the formula and another parameter.
  void append(double start, Op op) {
    tree.push_back(Token::parameter(static_cast<std::uint32_t>(values.size())));
    tree.push_back(Token::operation(op));
    values.push_back(start);
  }

  /// The same with some parameters as numbers: those that `numberOf` gives one for.
  template <class NumberOf>
  std::optional<Variant> rounded(const NumberOf& numberOf) const {
    Variant result;
    result.tree = tree;
    std::vector<Token> tokens;
    for (std::size_t p = 0; p < values.size(); ++p) {
      if (const std::optional<double> number = numberOf(p)) {
        tokens.push_back(Token::constant(*number));
      } else {
        tokens.push_back(Token::parameter(static_cast<std::uint32_t>(result.values.size())));
        result.values.push_back(values[p]);
      }
    }
    if (result.values.size() == values.size()) return {};
    for (Token& token : result.tree) {
      if (token.kind == Token::Kind::kParameter) token = tokens[token.index];
    }
    return result;
  }

  double toleranceOf(std::size_t p, double standard_errors) const {
    const double by_error = std::isfinite(errors[p]) ? standard_errors * errors[p] : 0;
    const double size = std::fabs(values[p]);
    return std::clamp(by_error, kLeastTolerance * size, kMostTolerance * size);
  }

  /// The number that parameter p may stand for. One of a law where the formula is exact; else what is known of it.
  std::optional<double> numberOf(std::size_t p, double exact, double standard_errors) const {
    const double tolerance = toleranceOf(p, standard_errors);
    return loss <= exact ? simplestNear(values[p], tolerance) : shortestNear(values[p], tolerance);
  }
};

Result<Polisher> Polisher::create(const Engine& engine, const PolishedData& data, std::span<const Link* const> links,
                                  const Grammar& grammar, const LossOptions& loss) {
  Polisher polisher(engine, links, grammar, loss);
  const auto upload = [&](const DataView& view, std::optional<Dataset>& to) -> Status {
    Result<Dataset> uploaded = engine.upload(view);
    if (!uploaded) return uploaded.error();
    to = *std::move(uploaded);
    return okStatus();
  };
  if (const Status status = upload(data.searched, polisher.searched_); !status) return status.error();
  if (const Status status = upload(data.fitted.view(), polisher.fitted_); !status) return status.error();
  if (data.held_out != nullptr) {
    if (const Status status = upload(data.held_out->view(), polisher.held_out_); !status) return status.error();
  }
  polisher.fitted_rows_ = &data.fitted;
  return polisher;
}

Result<Polisher> Polisher::withStop(std::stop_token stop) const {
  Limits limits = engine_.options().limits;
  limits.stop = std::move(stop);
  const Result<Engine> engine = engine_.withLimits(limits);
  if (!engine) return engine.error();
  Polisher other = *this;
  other.engine_ = *engine;
  return other;
}

Result<std::vector<Polisher::Variant>> Polisher::variantsOf(std::span<const Finalist> finalists) const {
  std::vector<Variant> variants;
  if (!isOfSquares(loss_)) {
    for (const Finalist& finalist : finalists) {
      for (const Exponents exponents : waysToFit(finalist.tree)) {
        Variant variant;
        variant.tree = withoutConstants(finalist.tree, variant.values, exponents);
        variants.push_back(std::move(variant));
      }
    }
    return variants;
  }
  TokenBatch batch;
  for (const Finalist& finalist : finalists) batch.add(finalist.tree);
  const Result<Program> program = engine_.compile(batch.view());
  if (!program) return program.error();
  const std::size_t rows = fitted_rows_->size();
  std::vector<double> predictions(finalists.size() * rows), target(rows);
  const auto evaluated = engine_.evaluate(*program, *fitted_, {}, std::span<double>(predictions));
  if (!evaluated) return evaluated.error();
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    const Link& link = *links_[finalists[i].link];
    std::ranges::transform(fitted_rows_->target, target.begin(), link.forward);
    const Scaling scaling = bestScaling(std::span(predictions).subspan(i * rows, rows), target);
    for (const Exponents exponents : waysToFit(finalists[i].tree)) {
      Variant scaled;
      scaled.tree = withoutConstants(finalists[i].tree, scaled.values, exponents);
      Variant offset = scaled;
      scaled.append(scaling.factor, Op::kMul);
      offset.append(scaling.slope, Op::kMul);
      offset.append(scaling.offset, Op::kAdd);
      for (Variant* variant : {&scaled, &offset}) {
        variant->tree = undoLink(std::move(variant->tree), link);
        variants.push_back(std::move(*variant));
      }
    }
  }
  return variants;
}

Status Polisher::fit(std::vector<Variant>& variants, unsigned passes) const {
  if (variants.empty()) return okStatus();
  FitBatch batch;
  for (const Variant& variant : variants) {
    batch.trees.add(variant.tree);
    batch.starts.insert(batch.starts.end(), variant.values.begin(), variant.values.end());
  }
  const Result<Program> program = engine_.compile(batch.trees.view(), {.deferred = true});
  if (!program) return program.error();
  const Result<Fits> fits =
      engine_.fit(*program, *fitted_, batch.starts,
                  {.loss = loss_, .iterations = passes, .loss_tolerance = 1e-14, .step_tolerance = 1e-15});
  if (!fits) return fits.error();
  std::size_t at = 0;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    Variant& variant = variants[v];
    const auto first = static_cast<std::ptrdiff_t>(at), last = static_cast<std::ptrdiff_t>(at + variant.values.size());
    variant.values.assign(fits->parameters.begin() + first, fits->parameters.begin() + last);
    variant.errors.assign(fits->standard_errors.begin() + first, fits->standard_errors.begin() + last);
    variant.loss = fits->losses.values[v];
    at += variant.values.size();
  }
  return okStatus();
}

/// The variant with its values, simplified; without losses.
Result<Formula> Polisher::formulaOf(const Variant& variant) const {
  const Result<Expression> open = Expression::create(variant.tree);
  if (!open) return open.error();
  const Result<Expression> closed = withParameters(*open, variant.values);
  if (!closed) return closed.error();
  Expression simple = simplify(*closed);
  const std::size_t complexity = grammar_->complexityOf(simple.tokens());
  return Formula{.expression = std::move(simple), .complexity = complexity};
}

Status Polisher::addTo(Front& front, std::span<const Variant> variants) const {
  std::vector<Formula> formulas;
  for (const Variant& variant : variants) {
    if (!std::isfinite(variant.loss)) continue;
    Result<Formula> formula = formulaOf(variant);
    if (!formula) return formula.error();
    formulas.push_back(*std::move(formula));
  }
  std::vector<Expression> expressions;
  for (const Formula& formula : formulas) expressions.push_back(formula.expression);
  const Program program = engine_.compile(expressions);
  const Result<Losses> losses = engine_.loss(program, *searched_, {}, loss_);
  if (!losses) return losses.error();
  std::optional<Losses> held_out;
  if (held_out_) {
    Result<Losses> other = engine_.loss(program, *held_out_, {}, loss_);
    if (!other) return other.error();
    held_out = *std::move(other);
  }
  for (std::size_t i = 0; i < formulas.size(); ++i) {
    formulas[i].loss = losses->values[i];
    if (held_out) {
      const double loss = held_out->values[i];
      formulas[i].held_out = std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity();
    }
    front.add(std::move(formulas[i]));
  }
  return okStatus();
}

/// What of two acceptable variants is better.
std::pair<std::size_t, std::size_t> Polisher::costOf(const Variant& variant) const {
  const Result<Formula> formula = formulaOf(variant);
  return {formula ? formula->complexity : ~std::size_t{0}, variant.values.size()};
}

Status Polisher::addConstant(Front& front) const {
  std::vector<Variant> variants(1);
  variants[0].tree = {Token::parameter(0)};
  variants[0].values = {fitted_rows_->targetMean()};
  if (const Status fitted = fit(variants, kFitPasses); !fitted) return fitted;
  return addTo(front, variants);
}

Status Polisher::polish(std::span<const Finalist> finalists, Front& front) const {
  if (finalists.empty()) return okStatus();
  Result<std::vector<Variant>> variants = variantsOf(finalists);
  if (!variants) return variants.error();
  if (const Status fitted = fit(*variants, kFitPasses); !fitted) return fitted;
  return addTo(front, *variants);
}

std::vector<Polisher::Variant> Polisher::rounderThan(const Variant& variant, double exact) const {
  std::vector<Variant> rounder;
  const auto round = [&](const auto& numberOf) {
    if (std::optional<Variant> other = variant.rounded(numberOf)) rounder.push_back(*std::move(other));
  };
  for (const double errors : kStandardErrors) {
    round([&](std::size_t p) { return variant.numberOf(p, exact, errors); });
  }
  for (std::size_t only = 0; only < variant.values.size(); ++only) {
    const auto roundOnly = [&](std::optional<double> number) {
      round([&](std::size_t p) { return p == only ? number : std::nullopt; });
    };
    roundOnly(0);
    roundOnly(1);
    std::optional<double> last;
    for (const double errors : kStandardErrors) {
      const std::optional<double> number = variant.numberOf(only, exact, errors);
      if (number != last) roundOnly(number);
      last = number;
    }
  }
  return rounder;
}

Result<Front> Polisher::round(const Front& front) const {
  struct Formed {
    Variant variant;
    double limit;
    bool is_done = false;
  };
  std::vector<Variant> variants;
  for (const Formula& formula : front.formulas()) {
    Variant variant;
    variant.tree = withoutConstants(formula.expression.tokens(), variant.values, Exponents::kWholeKept);
    variants.push_back(std::move(variant));
  }
  if (const Status fitted = fit(variants, kFitPasses); !fitted) return fitted.error();
  std::vector<Formed> formed;
  for (Variant& variant : variants) formed.push_back({variant, std::max(variant.loss * kHarm, front.floor())});
  while (true) {
    std::vector<Variant> trials;
    std::vector<std::size_t> owners;
    for (std::size_t i = 0; i < formed.size(); ++i) {
      if (formed[i].is_done) continue;
      for (Variant& trial : rounderThan(formed[i].variant, front.floor())) {
        trials.push_back(std::move(trial));
        owners.push_back(i);
      }
      formed[i].is_done = true;
    }
    if (trials.empty()) break;
    if (const Status fitted = fit(trials, kTrialPasses); !fitted) return fitted.error();
    // Of equal ones the first is taken, whose constants are the roundest.
    for (std::size_t t = 0; t < trials.size(); ++t) {
      Formed& owner = formed[owners[t]];
      if (!(trials[t].loss <= owner.limit)) continue;
      if (owner.is_done || costOf(trials[t]) < costOf(owner.variant)) owner.variant = trials[t];
      owner.is_done = false;
    }
  }
  std::vector<Variant> results;
  for (Formed& one : formed) results.push_back(std::move(one.variant));
  Front rounded(front.floor());
  if (const Status added = addTo(rounded, results); !added) return added.error();
  return rounded;
}

}  // namespace srjit::search
