// What a search gives: formulas, each the most exact of its complexity or less.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/error.h"
#include "ir/expression.h"

namespace srjit::search {

/// A formula over variables and constants, without parameters.
struct Formula {
  Expression expression;
  std::size_t complexity = 0;  ///< by the search's grammar
  double loss = 0;             ///< the search's loss as it is written: in strict f64, over all rows searched
  /// Over the rows that were held out, before its constants were fitted to them, too; infinite where the formula has no
  /// value; NaN if no rows were held out.
  double held_out = std::numeric_limits<double>::quiet_NaN();
  // Over the rows of `loss`; NaN where they have no meaning.
  double evidence = std::numeric_limits<double>::quiet_NaN();  ///< in nats, larger is better (evidence.h)
  double bic = std::numeric_limits<double>::quiet_NaN();       ///< Schwarz's criterion, smaller is better
  double r2 = std::numeric_limits<double>::quiet_NaN();        ///< the share of the target's variance that it explains
  double rounding = std::numeric_limits<double>::infinity();   ///< the loss that its evaluation's rounding explains
};

/// The formula to show, and to predict with, where only one can be.
struct Choice {
  enum class Rule : std::uint8_t {
    /// The largest evidence. Held-out rows decide by kBalance instead, as does a loss that is no likelihood.
    kEvidence,
    kBalance,     ///< the simplest within 5 % of the least loss, over held-out rows if any
    kLoss,        ///< the least loss
    kComplexity,  ///< the least loss of `complexity` at most; the simplest if there is none
  };
  Rule rule = Rule::kEvidence;
  std::size_t complexity = 0;
};

/// Of "evidence", "balance", "loss" or a complexity from 1 on. Errors: kInvalid.
Result<Choice> parseChoice(std::string_view text);

/// The Pareto front of complexity and loss: complexities ascend, losses descend. With `top` above 1 it also has
/// formulas that fewer than `top` others beat, but those that are the same law: with constants of their own or in
/// another form. Of one complexity the losses ascend. Not thread-safe.
class Front {
 public:
  /// Losses up to `floor` and Formula::rounding are rounding: all of them are equal, and less than any other.
  explicit Front(double floor = -std::numeric_limits<double>::infinity(), std::size_t top = 1)
      : floor_(floor), top_(top) {}

  /// An empty one of this floor, top and choice.
  Front emptied() const;

  /// Whether less than `top` formulas beat it: are as simple, and as exact to a thousandth. Never if the loss is not
  /// finite.
  bool takes(const Formula& formula) const;
  /// Takes `formula` if it takes() it, and drops those that are now beaten in the same sense. Gives whether it did.
  bool add(Formula formula);

  double floor() const noexcept { return floor_; }
  std::size_t top() const noexcept { return top_; }

  bool empty() const noexcept { return formulas_.empty(); }
  std::size_t size() const noexcept { return formulas_.size(); }
  const std::vector<Formula>& formulas() const noexcept { return formulas_; }
  /// The formula with the least loss of those with at most this complexity; null if there is none.
  const Formula* best(std::size_t complexity = static_cast<std::size_t>(-1)) const noexcept;
  void choose(Choice choice) noexcept { choice_ = choice; }
  /// The formula of the choice, by evidence if none was set. Null if the front is empty.
  const Formula* chosen() const noexcept;

 private:
  const Formula* balanced() const noexcept;
  bool isBeaten(const Formula& one, std::span<const Formula> by) const;

  double floor_;
  std::size_t top_;
  Choice choice_;
  std::vector<Formula> formulas_;
};

}  // namespace srjit::search
