#include "tools/search/front.h"

#include <algorithm>
#include <cmath>

namespace srjit::search {
namespace {

// A formula is shown instead of one with a smaller loss if it is no worse than this times, and simpler.
constexpr double kAsGood = 1.05;
constexpr double kGain = 1e-3;  // the share of a simpler formula's loss by which another's must be smaller

}  // namespace

bool Front::add(Formula formula) {
  if (!std::isfinite(formula.loss)) return false;
  const Formula* rival = best(formula.complexity);
  if (rival != nullptr && rival->loss * (1 - kGain) <= std::max(formula.loss, floor_)) return false;
  std::erase_if(formulas_, [&](const Formula& other) {
    return other.complexity >= formula.complexity && other.loss >= formula.loss;
  });
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
  const double limit = std::max(judged(*least) * kAsGood, floor_);
  return &*std::ranges::find_if(formulas_, [&](const Formula& formula) { return judged(formula) <= limit; });
}

}  // namespace srjit::search
