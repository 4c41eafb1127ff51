// Seeded random expressions: the populations of the benchmarks, and the generator of the tests' expressions. The same
// seed gives the same expressions with every compiler and standard library.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/expression.h"

namespace srjit {

/// SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() noexcept;
  /// Uniform on 0 .. n - 1; n > 0. Its bias is below n / 2^64.
  std::uint64_t below(std::uint64_t n) noexcept;
  /// Uniform on min .. max.
  int between(int min, int max) noexcept;
  /// Uniform on [0, 1), a multiple of 2^-53.
  double unit() noexcept;
  double between(double min, double max) noexcept { return min + (max - min) * unit(); }
  /// Uniform in significand and exponent: 2^min to 2^(max + 1), of either sign.
  double magnitude(int min, int max) noexcept;
  bool chance(double probability) noexcept { return unit() < probability; }

 private:
  std::uint64_t state_;
};

struct GeneratorOptions {
  std::uint64_t seed = 1;
  int min_nodes = 10;  ///< an expression has min_nodes to max_nodes tokens, each count equally likely; at least 1
  int max_nodes = 50;  ///< one too few where no operator fits, such as 2 nodes of binary operators
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
