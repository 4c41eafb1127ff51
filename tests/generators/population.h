// Seeded random expressions: the populations of the benchmarks, and the generator of the tests' expressions. The same
// seed gives the same expressions with every compiler and standard library.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/expression.h"
#include "ir/random.h"

namespace srjit {

struct GeneratorOptions {
  std::uint64_t seed = 1;
  int min_nodes = 10;  ///< an expression has min_nodes to max_nodes tokens, each count equally likely; at least 1
  int max_nodes = 50;  ///< one fewer if no operator fits, such as 2 nodes of binary operators
  int variables = 10;
  int parameters = 0;
  std::vector<Op> ops{};              ///< equally likely; empty means all
  double constant_probability = 0.2;  ///< of a leaf
  double parameter_probability = 0;   ///< of a leaf, if there are parameters; otherwise a leaf is a variable
  double special_probability = 0;     ///< of a constant: zeros of both signs, infinities, NaN, extremes
};

class ExpressionGenerator {
 public:
  explicit ExpressionGenerator(GeneratorOptions options);

  Expression next();
  std::vector<Expression> batch(std::size_t count);

  const GeneratorOptions& options() const noexcept { return options_; }

 private:
  Token leaf();
  double constant();
  Op pickOp(int nodes);

  GeneratorOptions options_;
  Random random_;
};

/// A named population of random trees: of 10 to 50 nodes over 10 variables, "mixed" (+ - * / pow abs log exp inv sqrt)
/// or "arithmetic" (+ - * abs); or "small": mixed trees of 5 to 10 nodes over 2 variables and up to 2 parameters, as
/// exhaustive symbolic regression enumerates them; none if unknown.
std::optional<GeneratorOptions> findPopulation(std::string_view name, std::uint64_t seed = 1);

}  // namespace srjit
