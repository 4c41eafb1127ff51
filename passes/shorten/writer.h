// Writes normal forms back as expressions: the cheapest of some ways, by a bounded search.
//
//   sums       by addends, positive ones first; with one number in front of all; with a power that some addends share
//              in front of these (Horner's scheme); squares and cubes completed; a constant within a logarithm, or with
//              a cosine the square of a sine or cosine
//   products   one number, factors, then a quotient by the rest; powers of like exponents as one square or root; the
//              number within a sum or an exponential; factors multiplied into a sum
//   powers     by square, cube, sqrt and products of them, pow, or exp and log
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "passes/shorten/forms.h"

namespace srjit {

/// Which of two forms of one cost is taken.
enum class Taste : std::uint8_t {
  kEasy,     ///< that with fewer digits, parentheses and variables
  kInside,   ///< that with numbers at the addends of sums
  kOutside,  ///< that with a number in front of sums
};

/// Postfix tokens and what they cost.
struct Written {
  static constexpr std::size_t kNever = std::size_t{1} << 40;  ///< no tokens: it cannot be written
  std::vector<Token> tokens = {};
  std::size_t cost = kNever, effort = 0;  ///< effort: of reading
};

/// Not thread-safe; all that it is given must outlive it.
class Writer {
 public:
  Writer(NormalForms& forms, const Writing& writing, Taste taste) : forms_(forms), writing_(writing), taste_(taste) {}
  Written write(const Value& value);

 private:
  using Options = std::vector<Written>;

  bool has(Op op) const { return writing_.operators[static_cast<std::size_t>(op)]; }
  Written number(double value) const;
  Written apply(Op op, const Written& a) const;
  Written apply(Op op, const Written& a, const Written& b) const;
  Written scaled(double factor, const Written& written) const;
  Written productOf(std::span<const Written> factors) const;
  Written quotientOf(double factor, Options above, const Options& below) const;
  void take(Written& best, Written other) const;

  Written writeFresh(const Value& value);
  Written writeFunction(const Value& value);
  Written writeExponential(const Value& exponent);
  Written writeShifted(const Value& value, int quarters);
  Written writeSum(std::vector<Value> addends, bool may_factor);
  Written writeAddends(std::span<const Value> addends, double front);
  Written writeFactored(std::span<const Value> addends);
  Written writeComplete(std::span<const Value> addends, int n);
  Written writeMerged(std::span<const Value> addends, std::size_t i, double factor, const Written& written);
  Written writeWithConstant(std::span<const Value> addends);
  Written writeProduct(double factor, const std::vector<Power>& powers, bool may_distribute);
  Written writeFlat(double factor, std::span<const Power> powers, const Written* group, bool is_below);
  Written writeGrouped(double factor, std::span<const Power> powers);
  Written writeDistributed(double factor, std::span<const Power> powers);
  Written writePower(double factor, const Power& power);
  Written writeFreshPower(double factor, const Power& power);

  NormalForms& forms_;
  const Writing& writing_;
  Taste taste_;
  int left_ = 500;                                      ///< lists of addends and powers that are still searched
  std::map<std::pair<TermId, double>, Written> known_;  ///< by term and factor
  std::map<std::tuple<TermId, double, double>, Written> known_powers_;  ///< by base, exponent and factor
};

}  // namespace srjit
