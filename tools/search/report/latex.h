// Formulas as LaTeX. All functions are thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "ir/expression.h"
#include "ir/text.h"

namespace srjit::search {

/// `expression` as LaTeX math, without the signs around it that start math; needs the package amsmath. It is for
/// readers: it has no more parentheses than they need, so x0 * (x1 * x2) is written as (x0 * x1) * x2 is. An operator
/// that differs from the usual function of some name in some values, such as pdiv, is a call by its own name.
///
/// A variable is written as latexNames() has it; a parameter is p_{3}. Linear in the tokens and the columns; not
/// recursive.
std::string latexText(const Expression& expression, const ColumnNames& columns);

/// A name as LaTeX math: one letter is itself, a Greek letter's name is the letter (but pi is not: that is a constant),
/// a longer name is upright. Digits at the end, with or without '_' before them, are an index.
std::string latexName(std::string_view name);

/// What stands for the variables of these indices from 0 on, `count` or one per column if those are more: their names
/// as latexName() has them, or x_{3} for a column without a name or with that of an earlier one. No two are the same:
/// of columns x1 and x_1 each is upright, with all of its name.
std::vector<std::string> latexNames(const ColumnNames& columns, std::size_t count);

/// A number that numberText() of ir/text/words.h or fmt wrote, as LaTeX math: "1.2e-05" is 1.2 \cdot 10^{-5}.
std::string latexNumber(std::string_view digits);

}  // namespace srjit::search
