// Trees of a search, and how new ones are made of them. A tree is valid postfix tokens over variables and constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/numbers/random.h"
#include "tools/search/grammar.h"

namespace srjit::search {

using Tree = std::vector<Token>;

/// The first token of the subtree whose last is tokens[last].
std::size_t subtreeBegin(std::span<const Token> tokens, std::size_t last) noexcept;

/// A tree that is grown from a leaf, by putting operators in the place of leaves that are chosen at random, until its
/// complexity is at least `complexity` or nothing fits.
Tree randomTree(const Grammar& grammar, std::size_t complexity, Random& random);

/// `mother` with one of its subtrees replaced by one of `father`; operators are chosen as their roots nine times of ten
/// (J. Koza, "Genetic Programming", 1992, 6.2).
Tree crossover(std::span<const Token> mother, std::span<const Token> father, Random& random);

/// Changes `tree` in one of several ways: another token of the same arity, another number, a new subtree, an operator
/// put above a subtree or taken away, operands exchanged, or one subtree as the whole.
void mutate(Tree& tree, const Grammar& grammar, Random& random);

/// Which constants of a tree may be fitted. A power of a negative base has a value for whole exponents only, and no
/// derivative by any of them, so a fit of its exponent cannot begin.
enum class Exponents : std::uint8_t {
  kFitted,     ///< all constants
  kWholeKept,  ///< all but whole exponents up to kMostWholeExponent
};
inline constexpr double kMostWholeExponent = 20;

/// `tree` with parameters p0, p1, ... in the place of its constants, and the constants, which become `values`.
/// withParameters() of ir/expression.h is the other way.
Tree withoutConstants(std::span<const Token> tree, std::vector<double>& values,
                      Exponents exponents = Exponents::kFitted);
/// Constants that withoutConstants() replaces.
std::size_t constantsIn(std::span<const Token> tree, Exponents exponents = Exponents::kFitted) noexcept;
/// Gives these constants other values, one for each.
void setConstants(std::span<Token> tree, std::span<const double> values, Exponents exponents);
/// The ways to fit a tree: with whole exponents kept, if it has some, and with all constants.
std::vector<Exponents> waysToFit(std::span<const Token> tree);

/// What two trees have in common that are the same formula.
struct Canonical {
  std::uint64_t shape = 0;   ///< of its structure, whatever its constants
  std::uint64_t whole = 0;   ///< of structure and constants
  bool is_constant = false;  ///< reads no variable
};

/// The canonical form of a tree: what the rules of Math::kFast leave of it (passes/expression_optimizer.h), so that
/// a * (b + 0) and b * a are one formula. Uses memory of the thread again.
Canonical canonicalOf(std::span<const Token> tree);

}  // namespace srjit::search
