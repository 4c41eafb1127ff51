// A search around one formula of physics: generations of its mutated copies.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ir/expression.h"
#include "tests/generators/population.h"

namespace srjit {

inline constexpr std::size_t kKleinNishinaVariables = 7;

/// The cross section of Compton scattering per solid angle (O. Klein, Y. Nishina, Zeitschrift fuer Physik 52, 1929), of
/// 44 tokens: (alpha h / (2 pi m c))^2 / 2 (w / w0)^2 (w0 / w + w / w0 - sin(theta)^2), with x0 alpha, x1 h, x2 m,
/// x3 c, x4 w, x5 w0 and x6 theta.
Expression kleinNishina();
double kleinNishinaValue(const std::array<double, kKleinNishinaVariables>& x);

/// A model of a search: every generation has `count` expressions. Random choice replaces selection, so that every
/// machine evaluates the same expressions: a child is the formula (one in three) or one of the generation before,
/// mutated once; so an expression is three mutations from the formula on average. A mutation exchanges an operator for
/// one of the same arity, a leaf for another, or a subtree of up to 7 tokens for a new one of up to 7. Expressions have
/// 24 to 64 tokens.
class Generations {
 public:
  explicit Generations(std::size_t count, std::uint64_t seed = 1);

  const std::vector<Expression>& current() const noexcept { return current_; }
  void next();

 private:
  Expression mutated(const Expression& parent);

  Random random_;
  ExpressionGenerator subtrees_;
  Expression formula_;
  std::vector<Expression> current_;
};

}  // namespace srjit
