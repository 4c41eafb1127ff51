// Normal forms of formulas: what is equal by the rules of sums, products, powers, exponentials and logarithms is mostly
// one term. (Cancellation of polynomials in denominators is left out.)
//
//   Value     a number times a term
//   term      1, a variable, a function of values, a product of powers of terms, or a sum of values
//   product   bases are no products (but for roots of products of unknown sign), exponents are not 0; one exp() at most
//   sum       at least two values, no sums among them, no factor that all of them have; most numbers are above 0,
//             or half of them and the first, and the most frequent magnitude is 1, but for bases of roots; a constant
//             is the last
//
// Terms are hash-consed: equal terms are one number.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/numbers/intervals.h"
#include "ir/ops.h"

namespace srjit {

inline bool isWhole(double x) noexcept { return std::rint(x) == x; }
inline bool isEven(double x) noexcept { return isWhole(x / 2); }
inline bool isOdd(double x) noexcept { return isWhole(x) && !isEven(x); }

using TermId = std::uint32_t;
inline constexpr TermId kOne = 0;

struct Value {
  double factor = 0;
  TermId term = kOne;
  bool operator==(const Value&) const = default;
};

struct Power {
  TermId base;
  double exponent;
  bool operator==(const Power&) const = default;
};

struct Term {
  enum class Kind : std::uint8_t { kVariable, kProduct, kFunction, kSum, kOne };  ///< in the order of writing
  Kind kind = Kind::kOne;
  Op op{};                         ///< kFunction
  std::uint32_t index = 0;         ///< kVariable
  std::vector<Value> values = {};  ///< kFunction: the operands; kSum: the addends
  std::vector<Power> powers = {};  ///< kProduct
  Interval range{1, 1};            ///< that of its values that are numbers; a zero counts with either sign
};

/// How a function treats the sign of its operand.
enum class Parity : std::uint8_t { kNeither, kOdd, kEven };
Parity parityOf(Op op) noexcept;

/// Makes terms. If a number overflows or underflows, hasFailed() and the terms are of no use. Not thread-safe.
class NormalForms {
 public:
  static constexpr std::size_t kMostAddends = 24;

  /// `ranges`: of variables, by index; must outlive this. `expands`: whether products of sums are multiplied out where
  /// they are added to something, up to kMostAddends.
  NormalForms(std::span<const Interval> ranges, bool expands);

  /// The value of an expression without parameters.
  Value read(const Expression& expression);

  bool hasFailed() const noexcept { return has_failed_; }
  bool hasExpanded() const noexcept { return has_expanded_; }  ///< whether a product of sums was multiplied out
  const Term& term(TermId id) const noexcept { return terms_[id]; }
  bool isFunction(TermId id, Op op) const noexcept {
    return terms_[id].kind == Term::Kind::kFunction && terms_[id].op == op;
  }

  Value add(std::span<const Value> values);
  Value multiply(const Value& a, const Value& b);
  Value power(const Value& base, double exponent);
  Value exponential(const Value& exponent);
  Value logarithm(const Value& operand);
  Value absolute(const Value& operand);
  /// The function, by its parity and its inverse (functions.def); computed if all operands are constants.
  Value function(Op op, std::vector<Value> operands);
  /// factor times the powers, in normal form.
  Value product(double factor, std::vector<Power> powers);

  /// The addends that `value` is the sum of.
  std::vector<Value> addendsOf(const Value& value) const;
  /// The powers that `term` is the product of.
  std::vector<Power> powersOf(TermId term) const;
  /// Like terms and logarithms gathered, in the order of writing.
  std::vector<Value> gathered(std::vector<Value> addends);
  /// The sum of gathered addends.
  Value normalSum(std::vector<Value> addends);
  Interval rangeOf(const Value& value) const;
  /// Below 0, 0 or above, as `a` is written before, is, or is written after `b`.
  int compare(TermId a, TermId b) const noexcept;

 private:
  Value apply(Op op, std::span<const Value> operands);
  Value checked(double factor, TermId term);
  Value constant(double number);
  TermId intern(Term term);
  Value variable(std::uint32_t index);
  std::vector<Power> commonPowers(std::span<const Value> addends) const;
  void gatherLogarithms(std::vector<Value>& addends);
  void expand(const Value& value, std::vector<Value>& addends);
  Value negatedBase(const Value& base);
  std::vector<Power> merged(std::span<const Power> powers) const;
  bool isNonNegative(TermId term) const noexcept { return terms_[term].range.low >= 0; }
  Interval rangeOf(const Term& term) const;

  std::span<const Interval> ranges_;
  bool expands_, has_failed_ = false, has_expanded_ = false;
  std::deque<Term> terms_;  ///< references stay valid
};

}  // namespace srjit
