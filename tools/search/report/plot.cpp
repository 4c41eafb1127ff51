#include "tools/search/report/plot.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "tools/search/report/gnuplot.h"

namespace srjit::search {
namespace {

constexpr std::size_t kMostPoints = 5'000;
constexpr std::size_t kLongestTitle = 96;  // characters
constexpr double kLeastShown = 1e-300;
constexpr double kAxisLimit = 1e300;  // of an axis: gnuplot computes with its ends

/// The colours are of M. Okabe and K. Ito, "Color Universal Design" (2008), which is safe for colour-blind readers.
constexpr std::string_view kLook = R"(set encoding utf8
set terminal svg size 1000,470 fixed font 'Helvetica,Arial,sans-serif,14' background '#ffffff'
set border 3 lc rgb '#555555'
set tics nomirror out scale 0.6
set grid back lc rgb '#dddddd' lt 1 lw 0.7
set key top right samplen 1.5 spacing 1.2
set style line 1 lc rgb '#0072B2' lw 2 pt 7 ps 0.7
set style line 2 lc rgb '#D55E00' lw 2.5 pt 6 ps 1.6
set style line 3 lc rgb '#80000000' lw 1.5 dt 2
set style line 4 lc rgb '#700072B2' pt 7 ps 0.4
)";

struct AxisRange {
  double low, high;
};

/// `text` for gnuplot, which takes everything between single quotes as it is, but for the quote and the line end.
std::string gnuplotString(std::string_view text) {
  std::string out = "'";
  for (const char c : text::printable(text)) {
    if (c == '\'') out += '\'';
    out += c;
  }
  return out + '\'';
}

/// At most kLongestTitle characters of `text`.
std::string cutTitle(std::string_view text) {
  std::size_t characters = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (starts && ++characters > kLongestTitle) {
      const std::size_t end = i;
      return std::string(text.substr(0, end)) + "\u2026";
    }
  }
  return std::string(text);
}

/// Where losses are drawn that have no logarithm: at a power of ten, a decade or more below all others.
double floorOf(const Front& front) {
  double least = std::numeric_limits<double>::infinity();
  for (const Formula& formula : front.formulas()) {
    if (formula.loss > kLeastShown) least = std::min(least, formula.loss);
  }
  return std::isfinite(least) ? std::pow(10.0, std::floor(std::log10(least)) - 1) : 1e-16;
}

/// From one power of ten to another, so that an axis of logarithms has two marks at least.
AxisRange decadesAround(AxisRange values) {
  const double low = std::floor(std::log10(values.low) - 0.1), high = std::ceil(std::log10(values.high) + 0.1);
  return {std::pow(10.0, std::max(low, -305.0)), std::pow(10.0, std::min(high, 305.0))};
}

void appendFront(std::string& script, const Front& front) {
  const double floor = floorOf(front);
  const auto drawnLoss = [&](const Formula& formula) { return std::max(formula.loss, floor); };
  const std::vector<Formula>& formulas = front.formulas();
  script += "set xlabel 'complexity'\nset ylabel 'loss'\nset logscale y\nset format y '10^{%T}'\n";
  if (formulas.empty()) {
    script += "set xrange [0:10]\nset yrange [0.1:10]\nset label 1 'no formula' at graph 0.5,0.5 center\n";
    script += "plot NaN notitle\nunset label 1\n";
    return;
  }
  AxisRange losses = decadesAround({drawnLoss(formulas.back()), drawnLoss(formulas.front())});
  const bool has_floor = formulas.back().loss < floor;
  if (has_floor) losses.low = floor * 0.4;  // no mark below that of 0
  script += "$front << END\n";
  for (const Formula& formula : formulas) {
    fmt::format_to(std::back_inserter(script), "{} {}\n", formula.complexity, drawnLoss(formula));
  }
  script += "END\n";
  const std::size_t margin = 1 + (formulas.back().complexity - formulas.front().complexity) / 20;
  fmt::format_to(std::back_inserter(script), "set xrange [{}:{}]\nset yrange [{}:{}]\n",
                 static_cast<double>(formulas.front().complexity) - static_cast<double>(margin),
                 formulas.back().complexity + margin, losses.low, losses.high);
  if (has_floor) fmt::format_to(std::back_inserter(script), "set ytics add ('0' {})\n", floor);
  if (formulas.back().complexity - formulas.front().complexity < 10) script += "set xtics 1\n";
  script += "plot $front with steps ls 1 title 'Pareto front', $front with points ls 1 notitle";
  if (const Formula* const chosen = front.chosen()) {
    fmt::format_to(std::back_inserter(script),
                   ", \\\n  '+' using ({}):({}) every ::::0 with points ls 2 title 'chosen'", chosen->complexity,
                   drawnLoss(*chosen));
  }
  script += '\n';
}

/// Both ends of the axes of target and prediction.
AxisRange rangeOfRows(std::string_view rows, AxisRange values) {
  if (rows.empty()) return {0, 1};
  const double margin =
      values.high > values.low ? 0.04 * values.high - 0.04 * values.low : std::max(0.1 * std::abs(values.high), 1e-9);
  return {std::max(values.low - margin, -kAxisLimit), std::min(values.high + margin, kAxisLimit)};
}

void appendRows(std::string& script, const PlotData& data) {
  const std::size_t rows = std::min(data.target.size(), data.prediction.size());
  const std::size_t shown = std::min(rows, kMostPoints);
  AxisRange values{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  std::string points;
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t row = i * rows / shown;
    const double target = data.target[row], prediction = data.prediction[row];
    if (!(std::abs(target) < kAxisLimit && std::abs(prediction) < kAxisLimit)) continue;
    values = {std::min({values.low, target, prediction}), std::max({values.high, target, prediction})};
    fmt::format_to(std::back_inserter(points), "{} {}\n", target, prediction);
  }
  const AxisRange range = rangeOfRows(points, values);
  fmt::format_to(std::back_inserter(script),
                 "unset logscale\nset xtics autofreq\nset ytics autofreq\nset format '%g'\nset key off\nset xlabel {} "
                 "noenhanced\nset ylabel {} noenhanced\n"
                 "set xrange [{}:{}]\nset yrange [{}:{}]\n",
                 gnuplotString(data.target_name), gnuplotString("prediction of " + data.target_name), range.low,
                 range.high, range.low, range.high);
  if (points.empty()) {
    script += "set label 1 'no rows' at graph 0.5,0.5 center\nplot NaN notitle\n";
    return;
  }
  script += "$rows << END\n" + points + "END\nplot $rows with points ls 4 notitle, x with lines ls 3 notitle\n";
}

}  // namespace

std::string plotScript(const PlotData& data) {
  std::string script(kLook);
  script += "set multiplot layout 1,2 title " + gnuplotString(cutTitle(data.formula)) + " noenhanced\n";
  appendFront(script, data.front);
  appendRows(script, data);
  return script + "unset multiplot\n";
}

Result<std::string> plotSvg(const PlotData& data) {
  if (data.target.size() != data.prediction.size()) {
    return Error{Errc::kInvalid,
                 fmt::format("{} predictions for {} rows of the target", data.prediction.size(), data.target.size()),
                 {}};
  }
  return runGnuplot(plotScript(data));
}

}  // namespace srjit::search
