#include "tools/search/formulas/front.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "tools/search/trees/identity.h"

namespace srjit::search {
namespace {

// A formula is shown instead of one with a smaller loss if it is simpler, and worse by no more than this share.
constexpr double kAsGood = 0.05;
constexpr double kGain = 1e-3;      // the share of a simpler formula's loss by which another's must be smaller
constexpr double kSameLoss = 1e-9;  // the share by which losses of one law may differ, whose texts differ

/// That of an exact formula is less than any other.
double lossOf(const Formula& formula, double floor) noexcept {
  const bool is_exact = formula.loss <= std::min(formula.rounding, floor);
  return is_exact ? -std::numeric_limits<double>::infinity() : formula.loss;
}

bool isBeaten(const Formula& one, const Formula& by, double floor) {
  const double loss = lossOf(by, floor);
  return by.complexity <= one.complexity && loss - kGain * std::fabs(loss) <= lossOf(one, floor);
}

/// Of two formulas, one of them beaten by the other.
bool isSameLaw(const Formula& one, const Formula& other, double floor) {
  const double a = lossOf(one, floor), b = lossOf(other, floor);
  if (std::max(a, b) <= std::min(a, b) * (1 + kSameLoss)) return true;
  const auto shapeOf = [](const Formula& formula) {
    Trees tree;
    tree.add(formula.expression.tokens());
    return identityOf(tree[0]).shape;
  };
  return shapeOf(one) == shapeOf(other);
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
  Front front(floor_, top_);
  front.choice_ = choice_;
  return front;
}

/// Whether `top` of some formulas beat one, or another form of its law does.
bool Front::isBeaten(const Formula& one, std::span<const Formula> by) const {
  std::size_t better = 0;
  for (const Formula& other : by) {
    if (!search::isBeaten(one, other, floor_)) continue;
    if (top_ == 1 || isSameLaw(one, other, floor_) || ++better == top_) return true;
  }
  return false;
}

bool Front::takes(const Formula& formula) const { return std::isfinite(formula.loss) && !isBeaten(formula, formulas_); }

bool Front::add(Formula formula) {
  if (!takes(formula)) return false;
  const auto rank = [](const Formula& one) { return std::pair(one.complexity, one.loss); };
  formulas_.insert(std::ranges::lower_bound(formulas_, rank(formula), {}, rank), std::move(formula));
  std::vector<Formula> kept;
  for (Formula& one : formulas_) {
    if (!isBeaten(one, kept)) kept.push_back(std::move(one));
  }
  formulas_ = std::move(kept);
  return true;
}

const Formula* Front::best(std::size_t complexity) const noexcept {
  const auto end = std::ranges::upper_bound(formulas_, complexity, {}, &Formula::complexity);
  const auto least = std::ranges::min_element(formulas_.begin(), end, {}, &Formula::loss);
  return least == end ? nullptr : &*least;
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
