// Formulas as LaTeX. All functions are thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/text.h"

namespace srjit::text {

/// `expression` as LaTeX math without the signs that start math; needs the package amsmath. For readers, not for
/// parsers: it has the fewest parentheses, so x0 * (x1 * x2) looks as (x0 * x1) * x2, and a number comes before the
/// factor that it multiplies. An operator that differs from a function of mathematics in some values, such as pdiv, is
/// a call by its own name. A variable is written by latexNames(); a parameter is p_{3}.
///
/// Takes time linear in tokens and columns, and does not recurse.
std::string latexText(const Expression& expression, const ColumnNames& columns);

/// A name as LaTeX math: a letter or a Greek letter's name is that letter, but pi is not, which is a constant; any
/// other name is upright. Digits at the end, with or without '_' before them, are an index.
std::string latexName(std::string_view name);

/// The variables from index 0 on, `count` or one per column if those are more, as latexName() writes their names. A
/// column without a name, or with that of an earlier one, is x_{3}. No two are the same: columns x1 and x_1 are
/// upright.
std::vector<std::string> latexNames(const ColumnNames& columns, std::size_t count);

/// A number that numberText() or fmt wrote, as LaTeX math: "1.2e-05" is 1.2 \cdot 10^{-5}.
std::string latexNumber(std::string_view digits);

}  // namespace srjit::text
