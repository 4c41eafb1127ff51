#include "tools/search/screen.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tools/search/formulas/scaling.h"

namespace srjit::search {

void FitBatch::add(const TreeView& tree, Exponents exponents, const Form* form) {
  const std::vector<ParameterBounds> own =
      form == nullptr ? std::vector<ParameterBounds>() : form->boundsOf(tree.codes);
  std::uint32_t parameters = 0;
  std::size_t done = 0;
  forEachConstant(tree, exponents, [&](std::size_t i) {
    trees.put(tree.part(done, i));
    trees.put(parameterCode(parameters++));
    starts.push_back(tree.constants[i]);
    if (!own.empty()) bounds.push_back(own[i]);
    done = i + 1;
  });
  trees.put(tree.part(done, tree.size()));
  trees.close();
}

Engine withStop(const Engine& engine, std::stop_token stop) {
  Limits limits = engine.options().limits;
  limits.stop = std::move(stop);
  return engine.withLimits(limits).value();
}

bool isOfSquares(const LossOptions& loss) noexcept {
  return !loss.custom && infoOf(loss.kind).term == LossTerm::kSquared;
}

namespace {

/// A weighted sum of squares: scaled * 2^(2 exponent).
struct Squares {
  double scaled = 0;
  int exponent = 0;
};

/// Of the target's deviations from its mean; from 0 if not `is_centred`.
Squares sumOfSquares(const RowSet& rows, bool is_centred) {
  const Standardised target = standardise(rows.target, rows);
  const double shift = is_centred ? 0 : std::ldexp(target.centre, -target.exponent);
  Squares sum{.exponent = target.exponent};
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double difference = target.deviations[r] + shift;
    sum.scaled += rows.weightOf(r) * difference * difference;
  }
  return sum;
}

double weightsOf(const RowSet& rows) noexcept {
  double weights = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) weights += rows.weightOf(r);
  return weights;
}

/// The loss, one of squares, for this share of a weighted sum of squared errors.
double lossOfSum(const LossOptions& loss, double share, const Squares& sum, const RowSet& rows) {
  const double scaled = share * sum.scaled;
  switch (loss.kind) {
    case LossKind::kSse:
      return std::ldexp(scaled, 2 * sum.exponent);
    case LossKind::kRmse:
      return std::ldexp(std::sqrt(scaled / weightsOf(rows)), sum.exponent);
    case LossKind::kNmse: {
      const Squares all = sumOfSquares(rows, true);
      return std::ldexp(scaled / all.scaled, 2 * (sum.exponent - all.exponent));
    }
    default:
      return std::ldexp(scaled / weightsOf(rows), 2 * sum.exponent);
  }
}

Expression predictionOffBy(double error) {
  std::vector<Token> tokens = {Token::variable(0)};
  if (error != 0) tokens.insert(tokens.end(), {Token::constant(error), Token::operation(Op::kAdd)});
  return Expression::create(std::move(tokens)).value();
}

}  // namespace

SharesAsLosses lossesOfShares(const Engine& engine, const LossOptions& loss, const SharesAsLosses& shares,
                              const RowSet& rows) {
  const Squares squares = sumOfSquares(rows, true);
  SharesAsLosses losses{};
  if (isOfSquares(loss)) {
    std::ranges::transform(shares, losses.begin(), [&](double share) {
      return loss.kind == LossKind::kNmse ? share : lossOfSum(loss, share, squares, rows);
    });
    return losses;
  }
  std::vector<Expression> predictions = {predictionOffBy(0)};
  for (const double share : shares) {
    const double error = std::ldexp(std::sqrt(share * squares.scaled / weightsOf(rows)), squares.exponent);
    predictions.insert(predictions.end(), {predictionOffBy(error), predictionOffBy(-error)});
  }
  DataView view = rows.view();
  view.columns = {ColumnView(rows.target)};
  view.names = {};
  const Losses found = engine.loss(engine.compile(predictions), engine.upload(view).value(), {}, loss).value();
  if (found.values[0] != 0) {
    losses.fill(-std::numeric_limits<double>::infinity());
    return losses;
  }
  for (std::size_t i = 0; i < shares.size(); ++i) {
    losses[i] = std::fmin(found.values[2 * i + 1], found.values[2 * i + 2]);
    if (!std::isfinite(losses[i])) losses[i] = 0;
  }
  return losses;
}

double lossOfErrors(const LossOptions& loss, double share, const RowSet& rows) {
  if (!isOfSquares(loss)) return -std::numeric_limits<double>::infinity();
  return lossOfSum(loss, share * share, sumOfSquares(rows, false), rows);
}

Screen Screen::create(const Engine& engine, const RowSet& rows, std::span<const Frame> frames, const Units& units,
                      const LossOptions& loss, bool is_scaled) {
  LossOptions screened = loss;
  if (isOfSquares(loss)) {
    const LossKind plain = rows.hasOneTarget() ? LossKind::kMse : LossKind::kNmse;
    screened.kind = is_scaled ? LossKind::kScaledNmse : plain;
  }
  Screen screen(engine, screened);
  for (const Frame& frame : frames) {
    std::vector<double> target = frame.link->targetOf(rows.target);
    if (is_scaled) target = standardise(target, rows).deviations;
    const std::vector<std::vector<double>> columns =
        frame.in_units ? units.divide(rows.columns) : std::vector<std::vector<double>>();
    DataView view = rows.view();
    if (frame.in_units) view.columns.assign(columns.begin(), columns.end());
    view.target = ColumnView(target);
    screen.data_.push_back(engine.upload(view).value());
  }
  return screen;
}

// Each is evaluated once, so rules of algebra would take longer than they save. A fit's programs they make cheaper.
Pending<Losses> Screen::submitLoss(const Trees& trees, std::size_t frame) const {
  return engine_.submitLoss(trees.view(), data_[frame], {}, loss_, {.simplify = false}).value();
}

Pending<Fits> Screen::submitFit(const FitBatch& batch, std::size_t frame, unsigned iterations) const {
  const Program program = engine_.compile(batch.trees.view(), {.deferred = true}).value();
  const FitOptions options{
      .loss = loss_, .iterations = iterations, .bounds = batch.bounds, .has_bounds_of_each = !batch.bounds.empty()};
  return engine_.submitFit(program, data_[frame], batch.starts, options).value();
}

}  // namespace srjit::search
