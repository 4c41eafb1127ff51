#include "tools/search/formulas/scaling.h"

#include <algorithm>
#include <cmath>

namespace srjit::search {
namespace {

constexpr double kLeastDeterminant = 1e-12;

}  // namespace

Standardised standardise(std::span<const double> values, const RowSet& rows) {
  Standardised all{.deviations = {values.begin(), values.end()}};
  const auto divideByLargest = [&] {
    double largest = 0;
    for (const double value : all.deviations) largest = std::max(largest, std::fabs(value));
    const int exponent = largest > 0 ? std::ilogb(largest) : 0;
    for (double& value : all.deviations) value = std::ldexp(value, -exponent);
    return exponent;
  };
  all.exponent = divideByLargest();
  double sum = 0, weights = 0;
  for (std::size_t r = 0; r < values.size(); ++r) {
    sum += rows.weightOf(r) * all.deviations[r];
    weights += rows.weightOf(r);
  }
  // A mean that is rounded must not make equal numbers different from it.
  const auto [least, most] = std::ranges::minmax(all.deviations);
  const double mean = std::clamp(sum / weights, least, most);
  all.centre = std::ldexp(mean, all.exponent);
  for (double& value : all.deviations) value -= mean;
  all.exponent += divideByLargest();
  return all;
}

Scaling bestScaling(std::span<const double> predictions, const Standardised& target, const RowSet& rows) {
  Scaling scaling;
  if (!std::ranges::all_of(predictions, [](double f) { return std::isfinite(f); })) return scaling;
  const Standardised of = standardise(predictions, rows);
  const double f_mean = std::ldexp(of.centre, -of.exponent), g_mean = std::ldexp(target.centre, -target.exponent);
  double ff = 0, fg = 0, centred_ff = 0, centred_fg = 0, centred_gg = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double f = of.deviations[r], g = target.deviations[r], weight = rows.weightOf(r);
    ff += weight * (f + f_mean) * (f + f_mean);
    fg += weight * (f + f_mean) * (g + g_mean);
    centred_ff += weight * f * f;
    centred_fg += weight * f * g;
    centred_gg += weight * g * g;
  }
  const int exponent = target.exponent - of.exponent;
  if (ff > 0) scaling.factor = std::ldexp(fg / ff, exponent);
  double slope = std::ldexp(1, -exponent);
  if (centred_ff > kLeastDeterminant * ff) {
    slope = centred_fg / centred_ff;
    scaling.rest = 1 - slope * centred_fg / centred_gg;
  }
  scaling.slope = std::ldexp(slope, exponent);
  scaling.offset = std::ldexp(g_mean - slope * f_mean, target.exponent);
  return scaling;
}

}  // namespace srjit::search
