// Words that stand for operands, and the nearest known words for one that is unknown.
#pragma once

#include <string>
#include <string_view>

#include "ir/numeric.h"
#include "ir/text.h"

namespace srjit::text {

/// A column's name in backquotes may be any.
inline constexpr char kBackquote = '`';

/// Number of bytes from the backquote at `offset` to the one that closes it, or to the end of the text.
std::size_t scanQuotedName(std::string_view text, std::size_t offset) noexcept;

/// The meaning of an operand word.
enum class WordKind {
  kOperand,     ///< a variable, a parameter or a constant
  kTooLarge,    ///< an index above Expression::kMaxIndex
  kNoVariable,  ///< the name of a column that is no variable
  kNoIndex,     ///< x<i> or p<j>, where words of this form are names only
  kUnknown,
};

/// Reads a column name, x<i>, x[i], p<j>, p[j], pi, inf or nan; `token` gets it if kOperand.
WordKind readWord(std::string_view word, const ColumnNames& columns, Token& token) noexcept;

/// A constant with the other sign; a NaN has none.
Token negated(const Token& constant) noexcept;

/// Number of bytes of the word at `offset` of infix, which starts with a letter: scanWord(), or with its brackets x[i]
/// or p[j].
std::size_t scanOperand(std::string_view text, std::size_t offset) noexcept;

/// The variable whose name in backquotes is text[offset, offset + length). kSyntax if it is written wrongly or no
/// variable.
Result<Token> readQuotedWord(std::string_view text, std::size_t offset, std::size_t length, const ColumnNames& columns);

/// The word that readWord() or readQuotedWord() reads as `token`, a variable or parameter; in a form where an operator
/// name wins over a column (`operators_win`), no bare column of such a name is used.
void appendWord(std::string& out, const Token& token, const ColumnNames& columns, bool operators_win);

/// An error for a word that readWord() did not read at `offset`. `what` is what the form looks for there ("function",
/// "name", "word" or "column"), and decides which known words are offered.
Error wordError(std::string_view text, std::size_t offset, std::string_view word, std::string_view what, WordKind kind,
                const ColumnNames& columns);

/// The shortest text that reads back as the value, which is rounded to the precision.
std::string numberText(double value, Precision precision);

}  // namespace srjit::text
