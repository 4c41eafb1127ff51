#include "tools/search/screen.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_for.h>

#include <cmath>
#include <limits>

namespace srjit::search {

void TokenBatch::add(std::span<const Token> tree) {
  for (const Token& token : tree) {
    codes_.push_back(codeOf(token));
    constants_.push_back(token.value);
  }
  offsets_.push_back(static_cast<std::int64_t>(codes_.size()));
}

void TokenBatch::set(std::span<const std::span<const Token>> trees) {
  offsets_.resize(trees.size() + 1);
  for (std::size_t i = 0; i < trees.size(); ++i) {
    offsets_[i + 1] = offsets_[i] + static_cast<std::int64_t>(trees[i].size());
  }
  codes_.resize(static_cast<std::size_t>(offsets_.back()));
  constants_.resize(codes_.size());
  tbb::parallel_for(tbb::blocked_range<std::size_t>(0, trees.size(), 256), [&](const auto& range) {
    for (std::size_t i = range.begin(); i < range.end(); ++i) {
      auto at = static_cast<std::size_t>(offsets_[i]);
      for (const Token& token : trees[i]) {
        codes_[at] = codeOf(token);
        constants_[at++] = token.value;
      }
    }
  });
}

bool isOfSquares(const LossOptions& loss) noexcept {
  return !loss.custom && infoOf(loss.kind).term == LossTerm::kSquared;
}

double lossOfShare(const LossOptions& loss, double share, const RowSet& rows) noexcept {
  if (!isOfSquares(loss)) return -std::numeric_limits<double>::infinity();
  const double mean = rows.targetMean();
  double weights = 0, sum = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double difference = rows.target[r] - mean;
    weights += rows.weightOf(r);
    sum += rows.weightOf(r) * difference * difference;
  }
  switch (loss.kind) {
    case LossKind::kSse:
      return share * sum;
    case LossKind::kRmse:
      return std::sqrt(share * sum / weights);
    case LossKind::kNmse:
      return share;
    default:
      return share * sum / weights;
  }
}

Result<Screen> Screen::create(const Engine& engine, const RowSet& rows, std::span<const Link* const> links,
                              const LossOptions& loss) {
  LossOptions screened = loss;
  if (isOfSquares(loss)) screened.kind = LossKind::kScaledNmse;
  Screen screen(engine, screened);
  for (const Link* link : links) {
    std::vector<double> target;
    for (const double y : rows.target) target.push_back(link->forward(y));
    DataView view = rows.view();
    view.target = ColumnView(target);
    Result<Dataset> data = engine.upload(view);
    if (!data) return data.error();
    screen.data_.push_back(*std::move(data));
  }
  return screen;
}

Result<Pending<Losses>> Screen::submitLoss(const TokenBatch& trees, std::size_t link) const {
  return engine_.submitLoss(trees.view(), data_[link], {}, loss_);
}

Result<Pending<Fits>> Screen::submitFit(const FitBatch& batch, std::size_t link, unsigned iterations) const {
  const Result<Program> program = engine_.compile(batch.trees.view(), {.deferred = true});
  if (!program) return program.error();
  return engine_.submitFit(*program, data_[link], batch.starts, {.loss = loss_, .iterations = iterations});
}

}  // namespace srjit::search
