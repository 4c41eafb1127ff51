// Seeded random expressions: the populations of the benchmarks, and the generator of the tests' expressions. The same
// seed gives the same expressions with every compiler and standard library.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/expression.h"
#include "ir/numbers/random.h"
#include "ir/text.h"

namespace srjit {

/// Parses `text`; throws if it is no expression.
inline Expression infix(std::string_view text) { return parse(text, Language::kInfix).value(); }
inline std::vector<Expression> infixes(std::span<const std::string_view> texts) {
  std::vector<Expression> expressions;
  for (const std::string_view text : texts) expressions.push_back(infix(text));
  return expressions;
}
inline std::vector<Expression> infixes(std::initializer_list<std::string_view> texts) {
  return infixes(std::span(texts.begin(), texts.size()));
}

/// A leaf, and then `count` leaves with a binary operator each: the variables and the operators by their numbers.
template <class Leaf, class Operator>
Expression chainOf(std::uint32_t count, const Leaf& leaf, const Operator& op) {
  std::vector<Token> chain = {Token::variable(leaf(0U))};
  for (std::uint32_t i = 1; i <= count; ++i) {
    chain.push_back(Token::variable(leaf(i)));
    chain.push_back(Token::operation(op(i)));
  }
  return Expression::create(std::move(chain)).value();
}

struct GeneratorOptions {
  std::uint64_t seed = 1;
  int min_nodes = 10;  ///< an expression has min_nodes to max_nodes tokens, each count equally likely; at least 1
  int max_nodes = 50;  ///< one token shorter where no operator fits, as for 2 tokens of binary operators
  int variables = 10;
  int parameters = 0;
  std::vector<Op> ops{};              ///< empty means allOperators(); ExpressionGenerator says how they are drawn
  double constant_probability = 0.2;  ///< of a leaf
  double parameter_probability = 0;   ///< of a leaf, if there are parameters; otherwise a leaf is a variable
  double special_probability = 0;     ///< of a constant: zeros of both signs, infinities, NaN, extremes
};

/// The operators that random sequences of tests draw from, in an order that does not depend on the table. A new row of
/// ops.def need not be among them.
std::span<const Op> pinnedOperators() noexcept;

/// The operators of the table: the pinned ones in their order, then the others by the hashes of their names. A test
/// with one random sequence for all operators goes through them in this order, so that a new row changes the numbers of
/// other new rows at most.
std::vector<Op> allOperators();

/// What a drawn number means for a fuzzer: the index of one of `pinned` choices (at least one), or of one of `others`
/// behind them. A choice added to the others changes only numbers that may mean one of these: 16 of the 256 values of a
/// byte where 60 are pinned.
constexpr std::size_t stableChoice(std::uint64_t drawn, std::size_t pinned, std::size_t others) noexcept {
  const std::uint64_t first = drawn % pinned;
  return others > 0 && drawn / pinned % 5 == 4 ? pinned + first % others : first;
}

/// Draws the pinned operators among options.ops with equal probability (one that is named twice, twice as often). Each
/// other operator of options.ops is then put, with probability 1 / kOthersOneIn, in the place of one drawn operator of
/// its arity. Whether and where depends only on the seed, the number of the expression and the name of the operator.
/// So a row that the table gains changes no expression but those that then have the new operator, and no leaf. If no
/// operator of options.ops is pinned, all are drawn.
class ExpressionGenerator {
 public:
  static constexpr std::uint64_t kOthersOneIn = 8;

  /// `pinned` is not kept.
  explicit ExpressionGenerator(GeneratorOptions options, std::span<const Op> pinned = pinnedOperators());

  Expression next();
  std::vector<Expression> batch(std::size_t count);

  const GeneratorOptions& options() const noexcept { return options_; }

 private:
  Token leaf();
  double constant();
  Op pickOp(int nodes);
  void insertOthers(std::vector<Token>& tokens) const;

  GeneratorOptions options_;
  std::vector<Op> drawn_;
  std::vector<Op> others_;  ///< of options_.ops, by the hashes of their names
  Random random_;
  std::uint64_t expressions_ = 0;  ///< made so far
};

/// A named population of random trees: of 10 to 50 nodes over 10 variables, "mixed" (+ - * / pow abs log exp inv sqrt)
/// or "arithmetic" (+ - * abs); or "small": mixed trees of 5 to 10 nodes over 2 variables and up to 2 parameters, as
/// exhaustive symbolic regression enumerates them; none if unknown.
std::optional<GeneratorOptions> findPopulation(std::string_view name, std::uint64_t seed = 1);

}  // namespace srjit
