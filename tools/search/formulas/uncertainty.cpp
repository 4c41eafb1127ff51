#include "tools/search/formulas/uncertainty.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>

#include <boost/math/distributions/students_t.hpp>

#include "ir/numbers/random.h"
#include "runtime/fit/least_squares.h"
#include "tools/search/formulas/variant.h"
#include "tools/search/rows.h"

namespace srjit::search {
namespace {

constexpr std::size_t kBlockRows = 1 << 16, kMostShuffledRows = 4096, kShuffles = 8;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
/// Sums of products of doubles with errors of a unit of the last place.
constexpr double kPivotThreshold = 1e-13;

/// Calls use(row, prediction, derivatives) for all rows. Of 2^16 rows at a time, since a Jacobian is large.
template <class Use>
void forEachRow(const Engine& engine, const Variant& variant, const DataView& rows, const Use& use) {
  const Program program = engine.compile(std::vector{Expression::create(variant.tree).value()});
  const Dataset data = engine.upload({.columns = rows.columns, .names = rows.names}).value();
  const std::size_t size = rows.columns.front().size;
  std::vector<double> slopes(variant.values.size());
  for (std::size_t first = 0; first < size; first += kBlockRows) {
    const std::size_t count = std::min(kBlockRows, size - first);
    const Dataset part = engine.rows(data, first, count).value();
    std::vector<double> values(count), jacobian(count * slopes.size());
    engine.evaluate(program, part, variant.values, std::span(values)).value();
    engine.jacobian(program, part, variant.values, std::span(jacobian)).value();
    for (std::size_t r = 0; r < count; ++r) {
      for (std::size_t p = 0; p < slopes.size(); ++p) slopes[p] = jacobian[p * count + r];
      use(first + r, values[r], std::as_const(slopes));
    }
  }
}

fit::ScaledCholesky factorOf(const Uncertainty& uncertainty) {
  fit::ScaledCholesky factor;
  factor.resize(uncertainty.lengths.size());
  factor.factor(uncertainty.cosines, std::vector<double>(factor.size()), kPivotThreshold);
  return factor;
}

}  // namespace

Uncertainty uncertaintyOf(const Engine& engine, const Expression& formula, const DataView& data) {
  const Variant variant = Variant::of(formula.tokens(), Exponents::kWholeKept);
  const std::size_t count = variant.values.size();
  // Their squares may leave the range of a double.
  std::vector<long double> gram(fit::triangleSize(count));
  long double squares = 0, weights = 0;
  std::size_t rows = 0;
  forEachRow(engine, variant, data, [&](std::size_t row, double value, const std::vector<double>& slopes) {
    const long double weight = data.weights ? valueAt(*data.weights, row) : 1;
    if (!(weight > 0)) return;
    const long double residual = static_cast<long double>(valueAt(*data.target, row)) - value;
    squares += weight * residual * residual;
    weights += weight;
    ++rows;
    const auto slope = [&](std::size_t p) -> long double { return std::isfinite(slopes[p]) ? slopes[p] : 0; };
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j <= i; ++j) gram[fit::triangleIndex(i, j)] += weight * slope(i) * slope(j);
    }
  });
  Uncertainty result;
  const auto lengthAt = [&](std::size_t i) { return std::sqrt(gram[fit::triangleIndex(i, i)]); };
  for (std::size_t i = 0; i < count; ++i) {
    result.lengths.push_back(static_cast<double>(lengthAt(i) * std::sqrt(rows / weights)));
    for (std::size_t j = 0; j <= i; ++j) {
      const long double product = lengthAt(i) * lengthAt(j);
      result.cosines.push_back(product > 0 ? static_cast<double>(gram[fit::triangleIndex(i, j)] / product) : 0);
    }
  }
  const fit::ScaledCholesky factor = factorOf(result);
  result.freedom = rows - std::min(rows, factor.rank());
  if (result.freedom > 0) result.residual = static_cast<double>(std::sqrt(squares / weights * rows / result.freedom));
  std::vector<double> work(count);
  std::size_t p = 0;
  for (std::size_t i = 0; i < variant.tree.size(); ++i) {
    if (variant.tree[i].kind == Token::Kind::kConstant) result.standard_errors.push_back(kUnknown);
    if (variant.tree[i].kind != Token::Kind::kParameter) continue;
    result.standard_errors.push_back(result.residual * std::sqrt(factor.inverseDiagonal(p, work)) / result.lengths[p]);
    ++p;
  }
  return result;
}

std::vector<double> halfWidths(const Engine& engine, const Expression& formula, const Uncertainty& uncertainty,
                               const DataView& rows, double level) {
  const Variant variant = Variant::of(formula.tokens(), Exponents::kWholeKept);
  const fit::ScaledCholesky factor = factorOf(uncertainty);
  const double noise = studentQuantile(level, uncertainty.freedom) * uncertainty.residual;
  std::vector<double> widths, scaled(factor.size()), solution(factor.size());
  forEachRow(engine, variant, rows, [&](std::size_t, double, const std::vector<double>& slopes) {
    for (std::size_t p = 0; p < slopes.size(); ++p) {
      scaled[p] = uncertainty.lengths[p] > 0 ? slopes[p] / uncertainty.lengths[p] : 0;
    }
    factor.forward(scaled, solution);
    double variance = 1;
    for (const double element : solution) variance += element * element;
    widths.push_back(std::isfinite(variance) ? noise * std::sqrt(variance) : kUnknown);
  });
  return widths;
}

double studentQuantile(double level, std::size_t freedom) {
  return freedom == 0 ? kUnknown
                      : boost::math::quantile(boost::math::students_t(static_cast<double>(freedom)), (1 + level) / 2);
}

std::vector<double> importancesOf(const Engine& engine, const Expression& formula, const DataView& data) {
  const std::size_t size = data.columns.front().size, rows = std::min(size, kMostShuffledRows);
  std::vector<std::size_t> numbers(rows);
  for (std::size_t r = 0; r < rows; ++r) numbers[r] = r * size / rows;
  RowSet set = gatherRows(data, numbers);
  const Program program = engine.compile(std::vector{formula});
  const auto predicted = [&] {
    std::vector<double> values(rows);
    engine.evaluate(program, engine.upload({.columns = set.view().columns}).value(), {}, std::span(values)).value();
    return values;
  };
  const std::vector<double> values = predicted();
  std::vector<long double> changes(data.columns.size());
  for (std::size_t c = 0; c < changes.size(); ++c) {
    const auto is_own = [&](const Token& token) { return token.kind == Token::Kind::kVariable && token.index == c; };
    if (std::ranges::none_of(formula.tokens(), is_own)) continue;
    const std::vector<double> column = set.columns[c];
    Random random(c);
    for (std::size_t shuffle = 0; shuffle < kShuffles; ++shuffle) {
      for (std::size_t r = rows; r > 1; --r) std::swap(set.columns[c][r - 1], set.columns[c][random.below(r)]);
      const std::vector<double> others = predicted();
      for (std::size_t r = 0; r < rows; ++r) {
        const long double change = static_cast<long double>(values[r]) - others[r];
        if (std::isfinite(change)) changes[c] += set.weightOf(r) * change * change;
      }
    }
    set.columns[c] = column;
  }
  const long double sum = std::reduce(changes.begin(), changes.end());
  if (sum > 0) std::ranges::for_each(changes, [&](long double& change) { change /= sum; });
  return {changes.begin(), changes.end()};
}

}  // namespace srjit::search
