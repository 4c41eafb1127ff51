#include "tools/search/formulas/front.h"

#include <algorithm>
#include <cmath>

namespace srjit::search {
namespace {

// A formula is shown instead of one with a smaller loss if it is simpler, and worse by no more than this share.
constexpr double kAsGood = 0.05;
constexpr double kGain = 1e-3;  // the share of a simpler formula's loss by which another's must be smaller

}  // namespace

bool Front::add(Formula formula) {
  if (!std::isfinite(formula.loss)) return false;
  const auto isBeaten = [&](const Formula& one, const Formula& by) {
    return by.complexity <= one.complexity && by.loss - kGain * std::fabs(by.loss) <= std::max(one.loss, floor_);
  };
  if (const Formula* rival = best(formula.complexity); rival != nullptr && isBeaten(formula, *rival)) return false;
  std::erase_if(formulas_, [&](const Formula& other) { return isBeaten(other, formula); });
  const auto place = std::ranges::lower_bound(formulas_, formula.complexity, {}, &Formula::complexity);
  formulas_.insert(place, std::move(formula));
  return true;
}

const Formula* Front::best(std::size_t complexity) const noexcept {
  const auto end = std::ranges::upper_bound(formulas_, complexity, {}, &Formula::complexity);
  return end == formulas_.begin() ? nullptr : &*std::prev(end);
}

const Formula* Front::chosen() const noexcept {
  const auto judged = [](const Formula& formula) {
    return std::isnan(formula.held_out) ? formula.loss : formula.held_out;
  };
  const auto least = std::ranges::min_element(formulas_, {}, judged);
  if (least == formulas_.end()) return nullptr;
  const double limit = std::max(judged(*least) + kAsGood * std::fabs(judged(*least)), floor_);
  return &*std::ranges::find_if(formulas_, [&](const Formula& formula) { return judged(formula) <= limit; });
}

}  // namespace srjit::search
