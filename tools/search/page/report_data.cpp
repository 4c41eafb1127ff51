#include "tools/search/page/report_data.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include <fmt/format.h>

#include "ir/text.h"
#include "tools/page/html.h"
#include "tools/search/rows.h"

namespace srjit {

extern const PageFile kSearchCss, kSearchJs;

namespace search {
namespace {

/// A number that takes fewer bytes; the text of a double that is not finite is null anyway.
double rounded(double value, int digits) { return std::strtod(fmt::format("{:.{}g}", value, digits).c_str(), nullptr); }

template <class At>
Json drawnValues(std::size_t rows, int digits, const At& at) {
  const std::size_t shown = std::min(rows, kMostDrawnRows);
  Json values = Json::array();
  for (std::size_t i = 0; i < shown; ++i) values.push_back(rounded(at(i * rows / shown), digits));
  return values;
}

Json quantilesOf(std::vector<double> values) {
  Json quantiles = Json::array();
  auto from = values.begin();
  for (const double share : {.025, .25, .5, .75, .975}) {
    if (values.empty()) break;
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = values.begin() + static_cast<std::ptrdiff_t>(place);
    std::nth_element(from, below, values.end());
    const double high = below + 1 == values.end() ? *below : *std::min_element(below + 1, values.end());
    quantiles.push_back(rounded(std::lerp(*below, high, place - std::floor(place)), 6));
    from = below;
  }
  return quantiles;
}

}  // namespace

Result<Json> reportData(const Engine& engine, const Report& report) {
  const DataView& data = report.data;
  if (!data.target) return Error{Errc::kInvalid, "a report needs a target", {}};
  const std::size_t rows = data.target->size;
  const auto targetAt = [&](std::size_t row) { return valueAt(*data.target, row); };
  Json made{{"target", report.target_name},
            {"loss", report.loss_name},
            {"command", report.command},
            {"facts", report.facts},
            {"rows", rows},
            {"y", drawnValues(rows, 9, targetAt)},
            {"columns", Json::array()},
            {"front", report.front}};
  const Result<Dataset> uploaded = engine.upload(data);
  if (!uploaded) return uploaded.error();
  std::vector<double> residuals(rows), finite;
  std::vector<char> used(data.columns.size(), 0);
  for (Json& row : made["front"]) {
    Result<Expression> formula = parse(row["formula"].get<std::string>(), Language::kInfix, data.names);
    if (!formula) return formula.error();
    const Program program = engine.compile({&*formula, 1});
    const auto evaluated = engine.evaluate(program, *uploaded, {}, std::span<double>(residuals));
    if (!evaluated) return evaluated.error();
    if (!evaluated->empty()) return evaluated->front().error;
    for (std::size_t i = 0; i < rows; ++i) residuals[i] = targetAt(i) - residuals[i];
    finite.clear();
    std::ranges::copy_if(residuals, std::back_inserter(finite), [](double value) { return std::isfinite(value); });
    row["residuals"] = drawnValues(rows, 5, [&](std::size_t i) { return residuals[i]; });
    row["open_rows"] = rows - finite.size();
    row["quantiles"] = quantilesOf(finite);
    for (const Token& token : formula->tokens()) {
      if (token.kind == Token::Kind::kVariable) used[token.index] = 1;
    }
  }
  std::vector<std::size_t> order(used.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_partition(order, [&](std::size_t column) { return used[column] != 0; });
  for (const std::size_t column : order) {
    if (made["columns"].size() == kMostDrawnColumns) break;
    made["columns"].push_back(
        {{"name", column < data.names.size() ? data.names[column] : fmt::format("x{}", column)},
         {"values", drawnValues(rows, 9, [&](std::size_t row) { return valueAt(data.columns[column], row); })}});
  }
  made["columns_left_out"] = data.columns.size() - made["columns"].size();
  return made;
}

Result<std::string> reportPage(const Engine& engine, const Report& report) {
  const Result<Json> data = reportData(engine, report);
  if (!data) return data.error();
  return makePage("search", kSearchCss, kSearchJs, *data);
}

}  // namespace search
}  // namespace srjit
