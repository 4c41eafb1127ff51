#include "tools/search/formulas/polish.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "passes/simplify_expression.h"
#include "runtime/platform/deadline.h"
#include "tools/search/formulas/rounding.h"
#include "tools/search/formulas/scaling.h"
#include "tools/search/screen.h"
#include "tools/search/trees/look_alikes.h"

namespace srjit::search {
namespace {

constexpr int kMostRounds = 3;
constexpr std::size_t kNotAdmitted = std::numeric_limits<std::size_t>::max();  // a complexity
constexpr std::ptrdiff_t kMostSimple = 3;                                      // forms of a variant that are judged
constexpr unsigned kFitPasses = 40, kTrialPasses = 12;
constexpr double kStandardErrors[] = {3, 1, 0.3, 0.1};  // within this number of them a constant may be rounded
constexpr double kLikelyErrors = 2;                     // the same for a physical constant
constexpr double kExactErrors = 1e3;                    // the same for an exact formula, whose errors are uncertain
// Within these shares of its value a constant may be rounded.
constexpr double kMostTolerance = 1e-2, kLeastTolerance = 1e-15, kExactTolerance = 1e-6;
constexpr double kToleranceWithoutErrors = 1e-7, kLikelyTolerance = 1e-12;
constexpr double kHarm = 0.01;         // the share of a loss by which a rounded formula's may be larger
constexpr double kExactRest = 1e-12;   // the share of the variance below which a tree is as good as exact
constexpr double kNearlyExact = 1e-5;  // the share of the variance below which look-alikes are tried
constexpr std::size_t kMostLookAlikes = 8, kMostLooks = 3, kMostLooked = 24;

}  // namespace

/// The formulas that a variant may be written as, all of them admitted, each once.
struct Polisher::Forms {
  std::vector<Formula> simple;  ///< the shortest, equal in real arithmetic over the ranges of the columns
  std::vector<Formula> exact;   ///< with the bits of the variant

  bool has(const Expression& expression) const {
    const auto isIn = [&](const std::vector<Formula>& formulas) {
      return std::ranges::find(formulas, expression, &Formula::expression) != formulas.end();
    };
    return isIn(simple) || isIn(exact);
  }
};

Polisher::Polisher(const Engine& engine, std::span<const Frame> frames, const PolishRules& rules)
    : engine_(engine), frames_(frames.begin(), frames.end()), rules_(rules), writing_(rules.grammar.writing()) {}

Polisher Polisher::create(const Engine& engine, const PolishedData& data, std::span<const Frame> frames,
                          const PolishRules& rules) {
  Polisher polisher(engine, frames, rules);
  polisher.searched_ = engine.upload(data.searched).value();
  polisher.fitted_ = engine.upload(data.fitted.view()).value();
  if (data.held_out != nullptr) polisher.held_out_ = engine.upload(data.held_out->view()).value();
  polisher.fitted_rows_ = &data.fitted;
  for (const ColumnView& column : data.searched.columns) polisher.ranges_.push_back(rangeOf(column));
  polisher.near_ = std::make_shared<const Neighbourhood>(data.searched);
  polisher.rounding_ = lossOfErrors(rules.loss, kRounding, data.fitted);
  polisher.rows_ = static_cast<double>(countRows(data.searched));
  return polisher;
}

Polisher Polisher::withStop(std::stop_token stop) const {
  Polisher other = *this;
  other.stop_ = stop;
  other.engine_ = search::withStop(engine_, std::move(stop));
  return other;
}

/// For work between calls of the engine: forms of long formulas take milliseconds each.
void Polisher::checkStop() const {
  if (stop_.stop_requested()) throwError(stoppedByCaller());
}

/// A finalist's tree over the columns as they are.
struct Polisher::Written {
  std::vector<Token> tree;
  const Link* link;
  bool is_spelled = false;  ///< with the units of its columns, by Units::spelled()
  bool is_second = false;   ///< of the same finalist as the one before
};

std::vector<Polisher::Written> Polisher::writtenOf(std::span<const Finalist> finalists) const {
  std::vector<Written> written;
  for (const auto& [tree, number] : finalists) {
    const Frame& frame = frames_[number];
    if (!frame.in_units) {
      written.push_back({{tree.tokens().begin(), tree.tokens().end()}, frame.link});
      continue;
    }
    std::optional<std::vector<Token>> folded = rules_.units.folded(tree.tokens(), rules_.is_scaled);
    const bool is_folded = folded.has_value();
    if (is_folded) written.push_back({*std::move(folded), frame.link});
    written.push_back({rules_.units.spelled(tree.tokens()), frame.link, true, is_folded});
  }
  return written;
}

/// Without parameters for the factors of units: derivatives by them may leave the range of f64.
Variant Polisher::variantOf(const Written& written, Exponents exponents) const {
  Variant variant = Variant::of(written.tree, exponents);
  if (!written.is_spelled) return variant;
  std::vector<std::optional<double>> kept(variant.values.size());
  for (std::size_t p = 0; p < kept.size(); ++p) {
    if (rules_.units.isFactor(variant.values[p])) kept[p] = variant.values[p];
  }
  return variant.rounded(kept).value_or(variant);
}

std::vector<Variant> Polisher::variantsOf(std::span<const Finalist> finalists) const {
  const std::vector<Written> written = writtenOf(finalists);
  if (rules_.is_scaled) return scaledVariantsOf(written);
  std::vector<Variant> variants;
  for (const Written& one : written) {
    for (const Exponents exponents : waysToFit(one.tree)) {
      Variant variant = variantOf(one, exponents);
      variant.undo(*one.link);
      variants.push_back(std::move(variant));
    }
  }
  return variants;
}

std::vector<Variant> Polisher::scaledVariantsOf(std::span<const Written> written) const {
  std::vector<Variant> variants;
  Trees batch;
  for (const Written& one : written) batch.add(one.tree);
  const Program program = engine_.compile(batch.view()).value();
  const std::size_t rows = fitted_rows_->size();
  std::vector<double> predictions(written.size() * rows);
  engine_.evaluate(program, *fitted_, {}, std::span<double>(predictions)).value();
  double rest = 0;
  for (std::size_t i = 0; i < written.size(); ++i) {
    const auto& [tree, link, is_spelled, is_second] = written[i];
    const Standardised target = standardise(link->targetOf(fitted_rows_->target), *fitted_rows_);
    const Scaling scaling = bestScaling(std::span(predictions).subspan(i * rows, rows), target, *fitted_rows_);
    const bool is_needed = !is_second || !(rest <= scaling.rest + kHarm * std::fabs(scaling.rest) + kExactRest);
    rest = scaling.rest;
    if (!is_needed) continue;
    for (const Exponents exponents : waysToFit(tree)) {
      Variant scaled = variantOf(written[i], exponents);
      Variant offset = scaled;
      scaled.append(scaling.factor, Op::kMul);
      offset.append(scaling.slope, Op::kMul);
      offset.append(scaling.offset, Op::kAdd);
      scaled.undo(*link);
      variants.push_back(std::move(scaled));
      if (!rules_.grammar.has(Op::kAdd)) continue;
      offset.undo(*link);
      variants.push_back(std::move(offset));
    }
  }
  return variants;
}

void Polisher::fit(std::vector<Variant>& variants, unsigned passes) const {
  if (variants.empty()) return;
  FitBatch batch;
  for (const Variant& variant : variants) {
    batch.trees.add(variant.tree);
    batch.starts.insert(batch.starts.end(), variant.values.begin(), variant.values.end());
    if (rules_.grammar.form() == nullptr) continue;
    Trees whole;
    whole.add(closed(variant).tokens());
    std::vector<ParameterBounds> bounds = rules_.grammar.form()->boundsOf(whole[0].codes);
    bounds.resize(variant.tree.size());
    for (std::size_t i = 0; i < variant.tree.size(); ++i) {
      if (variant.tree[i].kind == Token::Kind::kParameter) batch.bounds.push_back(bounds[i]);
    }
  }
  const Program program = engine_.compile(batch.trees.view(), {.deferred = true}).value();
  const Fits fits = engine_
                        .fit(program, *fitted_, batch.starts,
                             {.loss = rules_.loss,
                              .iterations = passes,
                              .loss_tolerance = 1e-14,
                              .step_tolerance = 1e-15,
                              .bounds = batch.bounds,
                              .has_bounds_of_each = rules_.grammar.form() != nullptr})
                        .value();
  std::size_t at = 0;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    Variant& variant = variants[v];
    const auto first = static_cast<std::ptrdiff_t>(at), last = static_cast<std::ptrdiff_t>(at + variant.values.size());
    variant.values.assign(fits.parameters.begin() + first, fits.parameters.begin() + last);
    variant.errors.assign(fits.standard_errors.begin() + first, fits.standard_errors.begin() + last);
    variant.loss = fits.losses.values[v];
    at += variant.values.size();
  }
}

/// The variant with its values.
Expression Polisher::closed(const Variant& variant) const {
  return withParameters(Expression::create(variant.tree).value(), variant.values).value();
}

/// The shortest form of a formula; of one that has the form of the grammar, with the shortest parts.
Expression Polisher::shortFormOf(const Expression& whole) const {
  Trees tree;
  tree.add(whole.tokens());
  std::vector<Form::Part> parts;
  const Form* form = rules_.grammar.form();
  if (form == nullptr || !form->matches(tree[0].codes, parts)) return shortest(whole, ranges_, writing_);
  std::ranges::sort(parts, {}, &Form::Part::begin);
  const std::span<const Token> all = whole.tokens();
  std::vector<Token> tokens;
  std::size_t done = 0;
  for (const auto& [begin, end] : parts) {
    tokens.insert(tokens.end(), all.begin() + static_cast<std::ptrdiff_t>(done),
                  all.begin() + static_cast<std::ptrdiff_t>(begin));
    const std::span<const Token> own = all.subspan(begin, end - begin);
    const Expression part = shortest(Expression::create({own.begin(), own.end()}).value(), ranges_, writing_);
    tokens.insert(tokens.end(), part.tokens().begin(), part.tokens().end());
    done = end;
  }
  tokens.insert(tokens.end(), all.begin() + static_cast<std::ptrdiff_t>(done), all.end());
  return Expression::create(std::move(tokens)).value();
}

/// The variant with its values; without losses.
Polisher::Forms Polisher::formsOf(const Variant& variant) const {
  checkStop();
  const Expression whole = closed(variant);
  Forms forms;
  const auto add = [&](std::vector<Formula>& to, const Expression& form) {
    if (!rules_.grammar.admits(form.tokens()) || forms.has(form)) return;
    to.push_back({.expression = form, .complexity = rules_.grammar.complexityOf(form.tokens())});
  };
  if (rules_.grammar.form() != nullptr) add(forms.simple, shortFormOf(whole));
  for (const Expression& form : shorten(whole, ranges_, writing_)) add(forms.simple, form);
  // Rules of other functions, such as tan(x) for sin(x) / cos(x).
  for (const Expression& form : shorten(simplify(whole), ranges_, writing_)) add(forms.simple, form);
  std::ranges::stable_sort(forms.simple, {}, &Formula::complexity);
  if (forms.simple.size() > kMostSimple) forms.simple.erase(forms.simple.begin() + kMostSimple, forms.simple.end());
  add(forms.exact, simplify(whole, Math::kStrict));
  add(forms.exact, whole);
  return forms;
}

/// Computes the losses of formulas.
void Polisher::judge(std::span<Formula> formulas) const {
  if (formulas.empty()) return;
  std::vector<Expression> expressions;
  for (const Formula& formula : formulas) expressions.push_back(formula.expression);
  const Program program = engine_.compile(expressions);
  const Losses losses = engine_.loss(program, *searched_, {}, rules_.loss).value();
  for (std::size_t i = 0; i < formulas.size(); ++i) {
    formulas[i].loss = losses.values[i];
    boundRounding(formulas[i]);
  }
  if (!held_out_) return;
  const Losses held_out = engine_.loss(program, *held_out_, {}, rules_.loss).value();
  for (std::size_t i = 0; i < formulas.size(); ++i) {
    const double loss = held_out.values[i];
    formulas[i].held_out = std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity();
  }
}

/// The loss up to which a formula is as good as one of loss `loss`, if losses up to `rounding` are rounding.
double Polisher::limitOf(double loss, double rounding) noexcept {
  return std::max(loss + kHarm * std::fabs(loss), rounding);
}

/// Adds the variants in their simple forms, and in their exact forms where simplifying raised the loss. Gives the least
/// loss of each, infinite if no form is sound.
std::vector<double> Polisher::addTo(Front& front, std::span<const Variant> variants) const {
  std::vector<Formula> formulas, exact;
  std::vector<std::size_t> owners;
  std::vector<std::vector<Formula>> exact_forms(variants.size());
  for (std::size_t v = 0; v < variants.size(); ++v) {
    if (!std::isfinite(variants[v].loss)) continue;
    Forms forms = formsOf(variants[v]);
    owners.resize(owners.size() + forms.simple.size(), v);
    std::ranges::move(forms.simple, std::back_inserter(formulas));
    exact_forms[v] = std::move(forms.exact);
  }
  judge(formulas);
  std::vector<double> least(variants.size(), std::numeric_limits<double>::infinity());
  const auto note = [&](const Formula& formula, std::size_t owner) {
    if (formula.loss < least[owner]) least[owner] = formula.loss;
  };
  for (std::size_t i = 0; i < formulas.size(); ++i) note(formulas[i], owners[i]);
  for (std::size_t v = 0; v < variants.size(); ++v) {
    if (least[v] <= limitOf(variants[v].loss, rounding_)) continue;
    owners.resize(owners.size() + exact_forms[v].size(), v);
    std::ranges::move(exact_forms[v], std::back_inserter(exact));
  }
  judge(exact);
  std::ranges::move(exact, std::back_inserter(formulas));
  std::ranges::fill(least, std::numeric_limits<double>::infinity());
  std::vector<Formula> taken;
  std::vector<std::size_t> takers;
  for (std::size_t i = 0; i < formulas.size(); ++i) {
    if (!front.takes(formulas[i])) {
      note(formulas[i], owners[i]);
      continue;
    }
    taken.push_back(std::move(formulas[i]));
    takers.push_back(owners[i]);
  }
  weigh(taken, front.floor());
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (!near_->hasTrends(taken[i].expression, rules_.grammar.options().trends)) continue;
    if (!front.empty() && !isSound(taken[i], front.floor())) continue;
    note(taken[i], takers[i]);
    front.add(std::move(taken[i]));
  }
  return least;
}

/// Orders acceptable variants: the simpler formula first, then fewer digits. A free parameter counts the digits of the
/// number near it, plus one.
std::pair<std::size_t, int> Polisher::costOf(const Variant& variant) const {
  checkStop();
  std::size_t complexity = kNotAdmitted;
  const Expression whole = closed(variant);
  for (const Expression& form : {whole, shortFormOf(whole)}) {
    if (!rules_.grammar.admits(form.tokens())) continue;
    complexity = std::min(complexity, rules_.grammar.complexityOf(form.tokens()));
  }
  int digits = 0;
  for (const Token& token : variant.tree) {
    const bool has_name = rules_.grammar.options().codata && physicalNear(token.value, 0);
    if (token.kind == Token::Kind::kConstant) digits += has_name ? 1 : digitsOf(token.value);
    if (token.kind != Token::Kind::kParameter) continue;
    const double value = variant.values[token.index];
    digits += digitsOf(shortestNear(value, kLikelyTolerance * std::fabs(value)).value_or(value)) + 1;
  }
  return {complexity, digits};
}

void Polisher::addConstant(Front& front) const {
  std::vector<Variant> variants(1);
  variants[0].tree = {Token::parameter(0)};
  variants[0].values = {fitted_rows_->targetMean()};
  fit(variants, kFitPasses);
  addTo(front, variants);
}

void Polisher::polish(std::span<const Finalist> finalists, Front& front) const {
  if (finalists.empty()) return;
  std::vector<Variant> variants = variantsOf(finalists);
  fit(variants, kFitPasses);
  std::vector<Formula> known = front.formulas();
  addTo(front, variants);
  for (std::size_t look = 0; look < kMostLooks; ++look) {
    const std::vector<Variant> alikes = lookAlikes(front, known);
    known = front.formulas();
    addTo(front, alikes);
  }
}

/// What nearly exact formulas of `front` look like, those of `known` left out, fitted: the best for each.
std::vector<Variant> Polisher::lookAlikes(const Front& front, std::span<const Formula> known) const {
  std::vector<Variant> best;
  for (const Formula& formula : front.formulas()) {
    const bool is_known = std::ranges::find(known, formula.expression, &Formula::expression) != known.end();
    const bool is_nearly_exact = formula.loss > rounding_ && 1 - formula.r2 < kNearlyExact;
    if (is_known || !is_nearly_exact || formula.expression.size() > kMostLooked) continue;
    std::vector<Variant> variants;
    for (const Expression& whole : lookAlikesOf(formula.expression, ranges_, writing_)) {
      checkStop();
      const Expression alike = shortFormOf(whole);
      if (rules_.grammar.admits(alike.tokens())) variants.push_back(Variant::of(alike.tokens(), Exponents::kWholeKept));
    }
    fit(variants, kTrialPasses);
    std::erase_if(variants, [](const Variant& one) { return !std::isfinite(one.loss); });
    std::ranges::stable_sort(
        variants, {}, [&](const Variant& one) { return std::pair(std::max(one.loss, rounding_), one.tree.size()); });
    variants.resize(std::min(variants.size(), kMostLookAlikes));
    std::ranges::move(variants, std::back_inserter(best));
  }
  return best;
}

/// Numbers that a parameter may stand for, the shortest first: those of an exact formula, else the decimals that the
/// data support, one for each of kStandardErrors.
std::vector<double> Polisher::numbersFor(const Variant& variant, std::size_t parameter, bool is_exact) const {
  const double value = variant.values[parameter], size = std::fabs(value), error = variant.errors[parameter];
  std::vector<double> numbers;
  const double doubt = is_exact ? kExactTolerance * size : std::isfinite(error) ? kLikelyErrors * error : 0;
  if (rules_.grammar.options().codata) {
    if (const auto constant = physicalNear(value, doubt)) numbers.push_back(constant->value);
  }
  if (is_exact) {
    const double by_error = error > 0 ? kExactErrors * error : kMostTolerance * size;
    std::ranges::copy(numbersNear(value, std::clamp(by_error, kExactTolerance * size, kMostTolerance * size)),
                      std::back_inserter(numbers));
    return numbers;
  }
  for (const double errors : kStandardErrors) {
    const double by_error = std::isfinite(error) ? errors * error : kToleranceWithoutErrors * size;
    const double tolerance = std::clamp(by_error, kLeastTolerance * size, kMostTolerance * size);
    if (const std::optional<double> number = shortestNear(value, tolerance)) numbers.push_back(*number);
  }
  return numbers;
}

std::vector<Variant> Polisher::rounderThan(Structure structure, const Variant& variant, bool is_exact) const {
  std::vector<Variant> rounder;
  if (structure == Structure::kFree) rounder = variant.shortened();
  const auto round = [&](std::span<const std::optional<double>> numbers) {
    if (std::optional<Variant> other = variant.rounded(numbers)) rounder.push_back(*std::move(other));
  };
  const std::size_t count = variant.values.size();
  std::vector<std::vector<double>> numbers;
  for (std::size_t p = 0; p < count; ++p) numbers.push_back(numbersFor(variant, p, is_exact));
  // Several at once, since one constant may make up for another: those that have numbers of so few digits.
  for (int level = 0; level < (is_exact ? kMostDigits : static_cast<int>(std::size(kStandardErrors))); ++level) {
    std::vector<std::optional<double>> several(count);
    for (std::size_t p = 0; p < count; ++p) {
      for (std::size_t i = 0; i < numbers[p].size(); ++i) {
        const bool is_of_level = is_exact ? digitsOf(numbers[p][i]) <= level + 1 : i <= static_cast<std::size_t>(level);
        if (is_of_level) several[p] = numbers[p][i];
      }
    }
    round(several);
  }
  for (std::size_t only = 0; only < count; ++only) {
    std::vector<double> tried = {0, 1};
    tried.insert(tried.end(), numbers[only].begin(), numbers[only].end());
    tried.erase(std::unique(tried.begin(), tried.end()), tried.end());
    std::vector<std::optional<double>> one(count);
    for (const double number : tried) {
      one[only] = number;
      round(one);
    }
  }
  if (rules_.grammar.form() != nullptr) {
    std::erase_if(rounder, [&](const Variant& one) { return !rules_.grammar.admits(closed(one).tokens()); });
    return rounder;
  }
  if (structure == Structure::kKept) return rounder;
  // In other forms other constants may be 1: 1.05 * (u + 0.95 * v) is 1.05 * u + v.
  for (const Expression& form : shorten(closed(variant), ranges_, writing_)) {
    const Variant other = Variant::of(form.tokens(), Exponents::kWholeKept);
    if (other.values.size() > count) continue;  // each trial has fewer parameters, or fewer tokens
    for (std::size_t only = 0; only < other.values.size(); ++only) {
      std::vector<std::optional<double>> one(other.values.size());
      one[only] = 1;
      rounder.push_back(*other.rounded(one));
    }
  }
  return rounder;
}

/// For each variant, the loss up to which losses are rounding. A constant of an exact formula is not known better than
/// to a unit in the last place.
std::vector<double> Polisher::roundingOf(std::span<const Variant> variants, double floor) const {
  std::vector<Variant> trials;
  std::vector<std::size_t> owners;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    const Variant& variant = variants[v];
    if (!(variant.loss <= floor)) continue;
    for (std::size_t nudged = 0; nudged < variant.values.size(); ++nudged) {
      std::vector<std::optional<double>> numbers(variant.values.begin(), variant.values.end());
      for (const double towards : {-HUGE_VAL, HUGE_VAL}) {
        numbers[nudged] = std::nextafter(variant.values[nudged], towards);
        trials.push_back(*variant.rounded(numbers));
        owners.push_back(v);
      }
    }
  }
  fit(trials, 1);
  std::vector<double> rounding;
  for (const Variant& variant : variants) {
    // Of independent errors the squares add up.
    const auto operators = std::ranges::count(variant.tree, Token::Kind::kOp, &Token::kind);
    rounding.push_back(rounding_ * static_cast<double>(std::max<std::ptrdiff_t>(operators, 1)));
  }
  for (std::size_t t = 0; t < trials.size(); ++t) {
    double& largest = rounding[owners[t]];
    if (trials[t].loss > largest) largest = std::min(trials[t].loss, floor);
  }
  return rounding;
}

Front Polisher::round(const Front& front) const { return roundAs(Structure::kFree, front); }

Front Polisher::refit(const Front& front) const {
  Front all = front.emptied();
  for (Formula formula : front.formulas()) {
    judge(std::span(&formula, 1));
    Front one = front.emptied();
    one.add(formula);
    one = roundAs(Structure::kKept, one);
    if (one.empty()) continue;
    Formula best = *one.best();
    best.held_out = formula.held_out;
    all.add(std::move(best));
  }
  return all;
}

Front Polisher::roundAs(Structure structure, const Front& front) const {
  Front rounded = front;
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<double> constants;
    rounded = roundOnce(structure, rounded, constants);
    // Simplifying may have computed others of them, which are not round.
    const bool is_round = std::ranges::all_of(rounded.formulas(), [&](const Formula& formula) {
      return std::ranges::all_of(formula.expression.tokens(), [&](const Token& token) {
        return token.kind != Token::Kind::kConstant ||
               std::ranges::find(constants, std::fabs(token.value)) != constants.end();
      });
    });
    if (is_round) break;
  }
  return rounded;
}

/// A variant while it is rounded.
struct Polisher::Formed {
  Variant variant;
  double least;     ///< the loss of the best variant that was seen
  double rounding;  ///< the loss that is rounding
  std::pair<std::size_t, int> cost;
  bool is_done = false;
};

/// Rounds variants until no trial is simpler and as good. Those of a loss up to `exact` are exact.
void Polisher::roundVariants(Structure structure, std::vector<Formed>& formed, double exact) const {
  while (true) {
    std::vector<Variant> trials;
    std::vector<std::size_t> owners;
    for (std::size_t i = 0; i < formed.size(); ++i) {
      if (formed[i].is_done) continue;
      for (Variant& trial : rounderThan(structure, formed[i].variant, formed[i].variant.loss <= exact)) {
        trials.push_back(std::move(trial));
        owners.push_back(i);
      }
      formed[i].is_done = true;
    }
    if (trials.empty()) break;
    fit(trials, kTrialPasses);
    for (std::size_t t = 0; t < trials.size(); ++t) {
      double& least = formed[owners[t]].least;
      if (trials[t].loss < least) least = trials[t].loss;
    }
    // Of equal ones the first is taken.
    for (std::size_t t = 0; t < trials.size(); ++t) {
      Formed& owner = formed[owners[t]];
      if (!(trials[t].loss <= limitOf(owner.least, owner.rounding))) continue;
      const std::pair<std::size_t, int> cost = costOf(trials[t]);
      if (cost.first == kNotAdmitted) continue;
      if (owner.is_done || cost < owner.cost) {
        owner.variant = trials[t];
        owner.cost = cost;
      }
      owner.is_done = false;
    }
  }
}

/// Rounds once. `constants` become the magnitudes of all constants as they were rounded.
Front Polisher::roundOnce(Structure structure, const Front& front, std::vector<double>& constants) const {
  std::vector<Variant> variants;
  for (const Formula& formula : front.formulas()) {
    variants.push_back(Variant::of(formula.expression.tokens(), Exponents::kWholeKept));
  }
  fit(variants, kFitPasses);
  const std::vector<double> rounding = roundingOf(variants, front.floor());
  const double exact = std::max(front.floor(), rounding_);
  std::vector<Formed> formed;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    formed.push_back({variants[v], variants[v].loss, rounding[v], costOf(variants[v])});
  }
  roundVariants(structure, formed, exact);
  std::vector<Variant> results;
  for (Formed& one : formed) results.push_back(std::move(one.variant));
  for (const Variant& result : results) {
    for (const Token& token : result.tree) {
      if (token.kind == Token::Kind::kConstant) constants.push_back(std::fabs(token.value));
    }
  }
  Front rounded = front.emptied();
  const std::vector<double> losses = addTo(rounded, results);
  // A formula that was rounded by some rows, or simplified, may be worse on all.
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Formula& formula = front.formulas()[i];
    const bool is_worse = !(losses[i] <= limitOf(limitOf(formula.loss, 0), rounding[i]));
    if (is_worse && near_->hasTrends(formula.expression, rules_.grammar.options().trends)) rounded.add(formula);
  }
  return rounded;
}

}  // namespace srjit::search
