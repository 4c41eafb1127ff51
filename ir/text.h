// Text forms of expressions: infix, postfix, prefix and JSON. parse(print(e)) == e for every form.
//
//   infix    sum := term (('+'|'-') term)*      term := unary (('*'|'/') unary)*
//            unary := ('-'|'+') unary | power   power := atom (('^'|'**') unary)?      (right-associative)
//            atom := number | 'pi' | variable | parameter | function '(' sum (',' sum)* ')' | '(' sum ')'
//            '-' before a number that is not the base of a power makes a negative constant.
//   postfix  operands before operators, separated by white space; an operator is its text or its name
//   prefix   operators before operands, likewise
//   json     {"op": NAME, "args": [...]}, {"var": INDEX or "name"}, {"param": INDEX}, a number, or one of the strings
//            "inf", "-inf", "nan"
//
// Words: x<i> variables, p<j> parameters, column names, function names, pi, inf, nan (inf and nan are constants). Where a
// column name equals another word, the column wins for a variable position. No parser or printer recurses, so nesting is
// bounded by memory alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/expression.h"

namespace srjit {

enum class Language { kInfix, kPostfix, kPrefix, kJson };

/// Names of the variables, in column order; empty when they have none. A name that is not an identifier
/// ([A-Za-z_][A-Za-z0-9_]*) can only be printed in JSON and is otherwise written x<i>.
using ColumnNames = std::vector<std::string>;

/// Parses one expression. Errors are kSyntax (or kInvalid for an index out of range) and carry a Span; the message names
/// what was found and what was expected. Thread-safe.
Result<Expression> parse(std::string_view text, Language language, const ColumnNames& columns = {});

/// Prints so that parse() with the same columns gives the same expression back, bit for bit.
std::string print(const Expression& expression, Language language, const ColumnNames& columns = {});

/// The name of a form, as --from and --to spell it; none if unknown.
std::optional<Language> findLanguage(std::string_view name) noexcept;

/// The three-line message of an error with a Span in `text`: "ORIGIN:LINE:COLUMN: MESSAGE", the line, and a caret below it.
/// Lines longer than 120 bytes are shown as a window around the caret. `origin` may be a file name or "expression 3".
std::string withCaret(const Error& error, std::string_view text, std::string_view origin);

}  // namespace srjit
