// Which trees are the same formula.
#pragma once

#include <cstdint>

#include "tools/search/trees/arrays.h"

namespace srjit::search {

/// What two trees have in common that are the same formula.
struct Identity {
  std::uint64_t shape = 0;   ///< of its structure, whatever its constants
  std::uint64_t whole = 0;   ///< of structure and constants
  bool is_constant = false;  ///< its value is known to be the same for all values of its variables
};

/// The identity of a tree, in one walk: its value modulo 2^64, where variables are odd random numbers and functions
/// give such. So trees are the same that the rules of sums and products make equal: a * (b + 0) and b * a, x * x and
/// square(x), a * (b + c) and a * b + a * c. A quotient is a product with the reciprocal. Even numbers have none, so
/// theirs is a random number, and (a + b) / (a + b) may not be known to be 1. In the shape all constants are one
/// number, and so is a subtree without variables. Different formulas have equal hashes by chance only (J. Schwartz,
/// "Fast Probabilistic Algorithms for Verification of Polynomial Identities", JACM 27(4), 1980), but for powers of sums
/// above some thirty, which may be taken for 0. Uses memory of the thread again.
Identity identityOf(const TreeView& tree);

}  // namespace srjit::search
