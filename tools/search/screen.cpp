#include "tools/search/screen.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace srjit::search {

void FitBatch::add(const TreeView& tree, Exponents exponents) {
  std::uint32_t parameters = 0;
  std::size_t done = 0;
  forEachConstant(tree, exponents, [&](std::size_t i) {
    trees.put(tree.part(done, i));
    trees.put(parameterCode(parameters++));
    starts.push_back(tree.constants[i]);
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

/// Of the differences to `centre`, weighted.
double sumOfSquares(const RowSet& rows, double centre) noexcept {
  double sum = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double difference = rows.target[r] - centre;
    sum += rows.weightOf(r) * difference * difference;
  }
  return sum;
}

double weightsOf(const RowSet& rows) noexcept {
  double weights = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) weights += rows.weightOf(r);
  return weights;
}

/// The loss, one of squares, for this weighted sum of squared errors.
double lossOfSum(const LossOptions& loss, double sum, const RowSet& rows) noexcept {
  switch (loss.kind) {
    case LossKind::kSse:
      return sum;
    case LossKind::kRmse:
      return std::sqrt(sum / weightsOf(rows));
    case LossKind::kNmse:
      return sum / sumOfSquares(rows, rows.targetMean());
    default:
      return sum / weightsOf(rows);
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
  const double squares = sumOfSquares(rows, rows.targetMean());
  SharesAsLosses losses{};
  if (isOfSquares(loss)) {
    std::ranges::transform(shares, losses.begin(), [&](double share) {
      return loss.kind == LossKind::kNmse ? share : lossOfSum(loss, share * squares, rows);
    });
    return losses;
  }
  std::vector<Expression> predictions = {predictionOffBy(0)};
  for (const double share : shares) {
    const double error = std::sqrt(share * squares / weightsOf(rows));
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

double lossOfErrors(const LossOptions& loss, double share, const RowSet& rows) noexcept {
  if (!isOfSquares(loss)) return -std::numeric_limits<double>::infinity();
  return lossOfSum(loss, share * share * sumOfSquares(rows, 0), rows);
}

Screen Screen::create(const Engine& engine, const RowSet& rows, std::span<const Link* const> links,
                      const LossOptions& loss, bool is_scaled) {
  LossOptions screened = loss;
  if (isOfSquares(loss)) {
    const LossKind plain = rows.hasOneTarget() ? LossKind::kMse : LossKind::kNmse;
    screened.kind = is_scaled ? LossKind::kScaledNmse : plain;
  }
  Screen screen(engine, screened);
  for (const Link* link : links) {
    std::vector<double> target;
    for (const double y : rows.target) target.push_back(link->forward(y));
    DataView view = rows.view();
    view.target = ColumnView(target);
    screen.data_.push_back(engine.upload(view).value());
  }
  return screen;
}

// Each is evaluated once, so rules of algebra would take longer than they save. A fit's programs they make cheaper.
Pending<Losses> Screen::submitLoss(const Trees& trees, std::size_t link) const {
  return engine_.submitLoss(trees.view(), data_[link], {}, loss_, {.simplify = false}).value();
}

Pending<Fits> Screen::submitFit(const FitBatch& batch, std::size_t link, unsigned iterations) const {
  const Program program = engine_.compile(batch.trees.view(), {.deferred = true}).value();
  return engine_.submitFit(program, data_[link], batch.starts, {.loss = loss_, .iterations = iterations}).value();
}

}  // namespace srjit::search
