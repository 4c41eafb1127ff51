#include "tools/search/formulas/front.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "ir/text/lexer.h"

namespace srjit::search {
namespace {

// A formula is shown instead of one with a smaller loss if it is simpler, and worse by no more than this share.
constexpr double kAsGood = 0.05;
constexpr double kGain = 1e-3;  // the share of a simpler formula's loss by which another's must be smaller

bool isBeaten(const Formula& one, const Formula& by, double floor) {
  return by.complexity <= one.complexity && by.loss - kGain * std::fabs(by.loss) <= std::max(one.loss, floor);
}

}  // namespace

Result<Choice> parseChoice(std::string_view text) {
  using Rule = Choice::Rule;
  if (text == "evidence") return Choice{Rule::kEvidence};
  if (text == "balance") return Choice{Rule::kBalance};
  if (text == "loss") return Choice{Rule::kLoss};
  Choice choice{Rule::kComplexity};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), choice.complexity);
  if (code == std::errc() && end == text.data() + text.size() && choice.complexity > 0) return choice;
  return Error{Errc::kInvalid,
               fmt::format("cannot choose by {}, only by evidence, balance, loss or a complexity from 1 on",
                           text::inQuotes(text)),
               {}};
}

Front Front::emptied() const {
  Front front(floor_);
  front.choice_ = choice_;
  return front;
}

bool Front::takes(const Formula& formula) const noexcept {
  if (!std::isfinite(formula.loss)) return false;
  const Formula* rival = best(formula.complexity);
  return rival == nullptr || !isBeaten(formula, *rival, floor_);
}

bool Front::add(Formula formula) {
  if (!takes(formula)) return false;
  std::erase_if(formulas_, [&](const Formula& other) { return isBeaten(other, formula, floor_); });
  const auto place = std::ranges::lower_bound(formulas_, formula.complexity, {}, &Formula::complexity);
  formulas_.insert(place, std::move(formula));
  return true;
}

const Formula* Front::best(std::size_t complexity) const noexcept {
  const auto end = std::ranges::upper_bound(formulas_, complexity, {}, &Formula::complexity);
  return end == formulas_.begin() ? nullptr : &*std::prev(end);
}

const Formula* Front::chosen() const noexcept {
  if (formulas_.empty()) return nullptr;
  const auto hasEvidence = [](const Formula& formula) {
    return std::isnan(formula.held_out) && !std::isnan(formula.evidence);
  };
  switch (choice_.rule) {
    case Choice::Rule::kEvidence:
      if (!std::ranges::all_of(formulas_, hasEvidence)) return balanced();
      return &*std::ranges::max_element(formulas_, {}, &Formula::evidence);
    case Choice::Rule::kBalance:
      return balanced();
    case Choice::Rule::kLoss:
      return best();
    case Choice::Rule::kComplexity: {
      const Formula* least = best(choice_.complexity);
      return least != nullptr ? least : &formulas_.front();
    }
  }
  __builtin_unreachable();
}

/// Of a front that is not empty.
const Formula* Front::balanced() const noexcept {
  const auto judged = [](const Formula& formula) {
    return std::isnan(formula.held_out) ? formula.loss : formula.held_out;
  };
  const double least = judged(*std::ranges::min_element(formulas_, {}, judged));
  const double limit = std::max(least + kAsGood * std::fabs(least), floor_);
  return &*std::ranges::find_if(formulas_, [&](const Formula& formula) { return judged(formula) <= limit; });
}

}  // namespace srjit::search
