// Words that stand for operands, and the nearest known words for one that is unknown.
#pragma once

#include <string>
#include <string_view>

#include "ir/text.h"

namespace srjit::text {

/// What an operand word means.
enum class WordKind {
  kOperand,   ///< a variable, a parameter or a constant
  kTooLarge,  ///< x<i> or p<j> with an index above Expression::kMaxIndex
  kUnknown,
};

/// Reads a column name, x<i>, p<j>, pi, inf or nan; `token` gets it if kOperand.
WordKind readWord(std::string_view word, const ColumnNames& columns, Token& token) noexcept;

/// The word that readWord() reads as `token`, a variable or parameter; in a form where an operator name wins over a
/// column
/// (`operators_win`), no column of such a name is used.
void appendWord(std::string& out, const Token& token, const ColumnNames& columns, bool operators_win);

/// An error for a word that readWord() did not read at `offset`. `what` is what the form looks for there ("function",
/// "name", "word" or "column"), and decides which known words are offered.
Error wordError(std::string_view text, std::size_t offset, std::string_view word, std::string_view what, WordKind kind,
                const ColumnNames& columns);

}  // namespace srjit::text
