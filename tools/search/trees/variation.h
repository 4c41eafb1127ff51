// How new trees are made of nothing, and of others.
#pragma once

#include <cstddef>

#include "ir/numbers/random.h"
#include "tools/search/grammar.h"
#include "tools/search/trees/arrays.h"

namespace srjit::search {

/// Puts the tokens of a random tree to the open tree of `to`. Its complexity is `complexity` or, where no operators fit
/// that, the next that is possible; less if the grammar has no operator, more with a definition. Gives it. Every
/// division of an operator's complexity among its operands is equally probable.
std::size_t putRandomTree(Trees& to, const Grammar& grammar, std::size_t complexity, Random& random);

/// One of the mother's subtrees gives way to one of the father's; operators are chosen as their roots nine times of ten
/// (J. Koza, "Genetic Programming", 1992, 6.2).
Edit crossover(const TreeView& mother, const TreeView& father, Random& random);

/// Changes a tree in one of several ways: another token of the same arity, another number, a new subtree, an operator
/// or a definition put above a subtree, an operator taken away, operands exchanged, or one subtree as the whole. What
/// the tree has no place for changes nothing. New tokens are written to `memory`, which the edit borrows.
Edit mutation(const TreeView& tree, const Grammar& grammar, Random& random, Trees& memory);

}  // namespace srjit::search
