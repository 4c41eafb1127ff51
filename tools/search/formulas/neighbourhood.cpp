#include "tools/search/formulas/neighbourhood.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>

#include "ir/numbers/random.h"
#include "ir/reference.h"

namespace srjit::search {
namespace {

constexpr double kShrinking = 3;         // of the end of a column towards 0
constexpr double kWidening = 0.1;        // of a range
constexpr double kModerate = 3;          // ranges of the target
constexpr double kSlack = 1e-7;          // of slopes, so that a cube has a trend
constexpr double kSmallShare = 0x1p-14;  // of a side of the box

/// Ascending, each once.
std::vector<std::uint32_t> columnsOf(const Expression& formula) {
  std::vector<std::uint32_t> columns;
  for (const Token& token : formula.tokens()) {
    if (token.kind == Token::Kind::kVariable) columns.push_back(token.index);
  }
  std::ranges::sort(columns);
  const auto repeated = std::ranges::unique(columns);
  columns.erase(repeated.begin(), repeated.end());
  return columns;
}

}  // namespace

Interval widened(const Interval& range) {
  const double step = kWidening * (range.high - range.low);
  const double low = range.low - step, high = range.high + step;
  return {range.low >= 0 ? std::max(low, range.low / kShrinking) : low,
          range.high <= 0 ? std::min(high, range.high / kShrinking) : high};
}

/// One formula's sub-boxes.
struct Neighbourhood::Search {
  using Box = std::vector<Interval>;

  const Neighbourhood& around;
  const Expression& formula;
  std::vector<std::uint32_t> used;  ///< columns of the formula
  double reach = 0;                 ///< of a range
  Random random = Random(1);

  /// Whether some place of the box is near a row.
  bool isNear(const Box& box) const {
    for (std::size_t row = 0; row < around.columns_[used[0]].size(); ++row) {
      const auto isNearRow = [&](std::uint32_t c) {
        const double value = around.columns_[c][row], distance = reach * around.ranges_[c];
        return box[c].low - distance <= value && value <= box[c].high + distance;
      };
      if (std::ranges::all_of(used, isNearRow)) return true;
    }
    return false;
  }

  /// Whether a place that is drawn from the box is near a row and disproves that the formula is sound.
  bool isDisproved(const Box& box) {
    Box place = box;
    std::vector<double> values(box.size());
    for (const std::uint32_t c : used) {
      values[c] = random.between(box[c].low, box[c].high);
      place[c] = {values[c], values[c]};
    }
    const double value = evaluateReference(formula, values, {});
    return !around.isModerate({value, value, std::isnan(value)}) && isNear(place);
  }

  /// Adds both halves of a box, along the side that is the largest share of its range. Gives whether it did: it does
  /// not if this share is small.
  bool halve(const Box& box, std::vector<Box>& open) const {
    std::uint32_t side = used[0];
    double most = 0;
    for (const std::uint32_t c : used) {
      const double share = (box[c].high - box[c].low) / around.ranges_[c];
      if (share > most) {
        side = c;
        most = share;
      }
    }
    if (most < kSmallShare) return false;
    const double middle = std::midpoint(box[side].low, box[side].high);
    open.insert(open.end(), 2, box);
    open.back()[side].low = middle;
    open[open.size() - 2][side].high = middle;
    return true;
  }
};

Neighbourhood::Neighbourhood(const DataView& rows) {
  const std::size_t all = rows.target->size, count = std::min(all, kMostRows);
  for (const ColumnView& column : rows.columns) {
    const Interval range = rangeOf(column);
    box_.push_back(widened(range));
    ranges_.push_back(range.high - range.low);
    std::vector<double>& some = columns_.emplace_back();
    for (std::size_t i = 0; i < count; ++i) some.push_back(valueAt(column, i * all / count));
  }
  const Interval target = rangeOf(*rows.target);
  const double range = target.high > target.low ? target.high - target.low : std::max(std::fabs(target.high), 1.0);
  moderate_ = {target.low - kModerate * range, target.high + kModerate * range};
}

bool Neighbourhood::isModerate(const Interval& values) const noexcept {
  return values.isFinite() && values.low >= moderate_.low && values.high <= moderate_.high;
}

bool Neighbourhood::isSound(const Expression& formula) const {
  Search search{*this, formula, columnsOf(formula)};
  if (search.used.empty()) return true;
  search.reach = std::max(kWidening, std::pow(columns_[0].size(), -1 / static_cast<double>(search.used.size())));
  std::vector<Search::Box> open = {box_};
  for (std::size_t boxes = 0; boxes < kMostBoxes && !open.empty(); ++boxes) {
    const Search::Box box = std::move(open.back());
    open.pop_back();
    if (isModerate(evaluateInterval(formula, box)) || !search.isNear(box)) continue;
    if (search.isDisproved(box)) return false;
    search.halve(box, open);
  }
  return true;
}

bool Neighbourhood::hasTrends(const Expression& formula, std::span<const Trend> trends) const {
  const Search search{*this, formula, columnsOf(formula)};
  if (search.used.empty() || trends.empty()) return true;
  std::vector<Search::Box> open = {box_};
  for (std::size_t boxes = 0; boxes < kMostTrendBoxes && !open.empty(); ++boxes) {
    const Search::Box box = std::move(open.back());
    open.pop_back();
    const auto isProved = [&](const Trend& trend) {
      const Interval slope = evaluateIntervalSlope(formula, box, trend.column);
      const double slack = kSlack * (moderate_.high - moderate_.low) / ranges_[trend.column];
      return trend.rises ? slope.low >= -slack : slope.high <= slack;
    };
    if (!std::ranges::all_of(trends, isProved) && !search.halve(box, open)) return false;
  }
  return open.empty();
}

}  // namespace srjit::search
