// Formulas as LaTeX. All functions are thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "ir/expression.h"
#include "ir/text.h"

namespace srjit::search {

/// `expression` as LaTeX math, without the signs around it that start math; needs the package amsmath. It is for
/// readers: it has no more parentheses than they need, so x0 * (x1 * x2) is written as (x0 * x1) * x2 is. An operator
/// that differs from the usual function of some name in some values, such as pdiv, is a call by its own name.
///
/// A column is written by its name as latexName() has it, or where it has none, or an earlier column has the same, as
/// x_{3}; a parameter is p_{3}. Linear in the tokens; not recursive.
std::string latexText(const Expression& expression, const ColumnNames& columns);

/// A name as LaTeX math: one letter is itself, a Greek letter's name is the letter (but pi is not: that is a constant),
/// a longer name is upright. Digits at the end, with or without '_' before them, are an index.
std::string latexName(std::string_view name);

/// A number that numberText() of ir/text/words.h or fmt wrote, as LaTeX math: "1.2e-05" is 1.2 \cdot 10^{-5}.
std::string latexNumber(std::string_view digits);

}  // namespace srjit::search
