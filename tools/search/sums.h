// Sums and ratios of few terms, which trees reach slowly: a polynomial with many terms, a weighted sum of many columns,
// a quotient of two sums. They are found as sparse solutions of linear equations over a library of terms, and are the
// first trees of a search.
//
// The phases, for each frame:
//
//   terms     columns and their powers, with the parts of trees that are given, or products and functions of columns
//   values    of at most 400 terms in at most 256 rows, in f64; what is not finite or constant there is left out
//   forward   the term that explains most of the rest joins the sum, again and again (orthogonal matching pursuit:
//             Y. C. Pati, R. Rezaiifar, P. S. Krishnaprasad, Asilomar 1993)
//   backward  the term whose loss raises the rest least leaves, until one is left
//   trees     of every set of terms that was met: c0 + c1 t1 + ..., in Horner's form for powers of one column; for a
//             ratio, y = p - y q, where the products y t of the target are terms, too: p / (1 + q) (implicit equations,
//             as K. Kaheman, J. N. Kutz, S. L. Brunton, arXiv 2004.02322, have them)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "tools/search/setup.h"

namespace srjit::search {

/// Trees for the frame of this number; its grammar admits each. Where islands select by the best a + b f, a tree stands
/// for that, so a sum is without its constant and the first of its factors. `parts` are terms beside the powers of
/// columns; if there are none, products and functions of columns are. None if the grammar has no sums and products.
/// Throws the errors of the engine. Thread-safe.
std::vector<Expression> sparseSums(const SearchSetup& setup, std::size_t frame, std::span<const Expression> parts = {});

/// A term: what it computes, and the power of one column that it is, if it is one.
struct Term {
  std::vector<Token> tokens;
  std::uint32_t column = 0, power = 0;
  bool of_target = false;  ///< whether it is multiplied by the target
};

/// Terms, and their values by row and term.
struct TermTable {
  std::vector<Term> terms = {};
  std::vector<double> values = {};
};

/// Rows of the frame of this number, at equal distances, at most `most_rows` of those that count, with its columns and
/// target. A scaled target is near 1, but not centred: that of a ratio would be no ratio of few terms.
RowSet someRows(const SearchSetup& setup, std::size_t frame, std::size_t most_rows);

/// The library of a frame in such rows; `parts` as above. Throws the errors of the engine. Thread-safe.
TermTable libraryOf(const SearchSetup& setup, std::size_t frame, const RowSet& rows,
                    std::span<const Expression> parts = {});

/// The terms of at most `tokens` tokens. `rows`: those of the table.
TermTable shortTerms(const TermTable& table, std::size_t tokens, const RowSet& rows);

/// The sum of at most `most` terms, of a table or `more`, and a constant which comes nearest to the target of `wanted`
/// by its weights; other columns are not read. None if no term varies, or the grammar does not admit the sum.
/// Thread-safe.
std::optional<Expression> nearestSum(const TermTable& table, const TermTable& more, const RowSet& wanted,
                                     std::size_t most, const Grammar& grammar);

}  // namespace srjit::search
