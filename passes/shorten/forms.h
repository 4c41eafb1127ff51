// The shortest ways to write a formula: for finalists of a search, and for people.
//
// In two phases. The formula is first read into normal forms (normal_form.h): flat sums of number * term, flat products
// of powers with one number, exponentials and logarithms gathered. Then they are written back (writer.h): a bounded
// search over ways to write sums and products takes the cheapest. This costs less than equality saturation (M. Willsey
// et al., "egg: Fast and Extensible Equality Saturation", POPL 2021), since a normal form is unique by construction.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/ops.h"
#include "passes/shorten/normal_form.h"

namespace srjit {

/// Operators by enumerator.
using OperatorSet = std::bitset<kOpCount>;

/// What a formula may be written with, and what that costs: its complexity is the sum over its tokens.
struct Writing {
  OperatorSet operators;                 ///< that may be written
  std::array<unsigned, kOpCount> costs;  ///< by operator, at least 1
  unsigned variable_cost = 1, constant_cost = 1;

  /// All operators, each token of cost 1.
  static Writing withAll();
};

/// Expressions longer than this are given back as they are.
inline constexpr std::size_t kMostShortened = 200;

/// Ways to write `expression`, at most kMostForms, the cheapest first, each once; `expression` itself if none is as
/// cheap. `ranges` are those of the variables, by index; a variable past them may have any value.
///
/// Each form has the value of `expression` in real arithmetic, wherever all operators of `expression` have finite
/// values other than 0, and the variables are within `ranges`. None costs more than `expression`, in which sqrt(exp(u))
/// counts as exp(0.5 * u), and none has operators besides those of `writing` and of `expression`. So square(x0) / x0
/// becomes x0, and sqrt(square(x0)) becomes x0 where x0 is not negative, else abs(x0).
///
/// Several forms differ in where numbers stand: 1.05 * (sin(x0) + 0.95 * x1) and 1.05 * sin(x0) + 0.9975 * x1. After a
/// fit, other numbers of them may be 1. Computed numbers within a few units in the last place of a short decimal become
/// it. Thread-safe; time and memory are bounded.
inline constexpr std::size_t kMostForms = 6;
std::vector<Expression> shorten(const Expression& expression, std::span<const Interval> ranges, const Writing& writing);

/// The first of these forms, but for those that need products of sums multiplied out. Several times faster.
Expression shortest(const Expression& expression, std::span<const Interval> ranges, const Writing& writing);

}  // namespace srjit
