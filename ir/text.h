// Text forms of expressions: infix, postfix, prefix and JSON. parse(print(e)) == e for every form.
//
//   infix    sum   := term (('+'|'-') term)*       term  := unary (('*'|'/') unary)*
//            unary := ('-'|'+') unary | power      power := atom (('^'|'**') unary)?
//            atom  := constant | variable | parameter | function '(' sum (',' sum)* ')' | '(' sum ')'
//            constant := number | 'pi' | 'inf' | 'nan'
//            '^' is right-associative and binds tighter than a sign on its left: -x^2 is -(x^2). '-' directly before a
//            constant that is not the base of a power makes a negative constant, so -2 is one token and -(2) is neg of
//            2. A leading '+' has no meaning. A function is the name of any operator: add(x0, 1) is x0 + 1.
//   postfix  operands before operators, separated by white space; an operator is its text or its name
//   prefix   operators before operands, written as in postfix
//   json     {"op": NAME, "args": [...]}, {"var": INDEX or "column name"}, {"param": INDEX}, a number, or one of the
//            strings "inf", "-inf", "nan"
//
// Numbers are decimal, as std::from_chars reads them ("2", ".5", "1e-3"; no hexadecimal), correctly rounded; one that a
// double cannot hold (1e400, 1e-400) is an error. A NaN has neither sign nor payload.
//
// Words of infix, postfix and prefix: operator names, pi, inf, nan, and
//
//   mass, größe       the column of this name, if it is an identifier: letters (also beyond ASCII), digits and '_', no
//                     digit first
//   `net weight`      the column of this name, whatever the name; `\\`, `\`` and `\x09` in it are a backslash,
//                     a backquote and the byte of this number. What cannot be printed must be escaped
//   x3 or x[3]        the variable of index 3, named or not; zeros may precede the index of x3
//   p3 or p[3]        the parameter of index 3, with or without zeros
//
// One word has one meaning. inf and nan are always constants, x[3] and p[3] always indices, `...` always a column. A
// column name wins over pi; an operator name wins over a column in postfix and prefix, and in infix where '(' follows.
// Where any column, target and weights included, has a name of the form x<digits>, words of this form are names only:
// another one is an error that lists the columns, not an index. The same holds for p<digits>. The name of a column that
// is no variable is an error that says so. In JSON a string is a name and a number an index, so there is no ambiguity.
//
// No parser or printer recurses, so only memory bounds nesting. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/expression.h"

namespace srjit {

enum class Language { kInfix, kPostfix, kPrefix, kJson };
/// All, in the order of the enumerators.
inline constexpr Language kLanguages[] = {Language::kInfix, Language::kPostfix, Language::kPrefix, Language::kJson};

/// A column that expressions may not read, and what it is: "target" or "weights".
struct OtherColumn {
  std::string name, role;
};

/// Names of the variables in column order, with an index of them: build it once, parse many. Copies share it. Where a
/// name occurs twice, the first column has it.
class ColumnNames {
 public:
  ColumnNames() = default;
  ColumnNames(std::vector<std::string> names, std::vector<OtherColumn> others = {});
  ColumnNames(std::initializer_list<std::string> names) : ColumnNames(std::vector<std::string>(names)) {}

  bool empty() const noexcept { return names().empty(); }
  std::size_t size() const noexcept { return names().size(); }
  const std::string& operator[](std::size_t column) const noexcept { return names()[column]; }
  std::span<const std::string> names() const noexcept;
  /// The variable with this name, in constant time.
  std::optional<std::uint32_t> find(std::string_view name) const noexcept;
  /// What the column with this name is that is no variable; empty if there is none.
  std::string_view roleOf(std::string_view name) const noexcept;
  /// For messages: "column 'mass' (x7)", or "column x7" where it has no name.
  std::string describe(std::size_t column) const;
  /// All columns whose names are `letter`, 'x' or 'p', and digits. If any exist, words of this form are names only.
  std::span<const std::string> indexWords(char letter) const noexcept;

 private:
  struct Body;
  std::shared_ptr<const Body> body_;
};

/// Parses one expression. Errors are kSyntax (or kInvalid for an index above Expression::kMaxIndex) and carry a Span;
/// the message names the found and the expected token. The parser stops after `max_nodes` nodes, unless that is 0: a
/// longer text is an error of kLimit at the place where the parser stopped, and takes no memory beyond that place.
Result<Expression> parse(std::string_view text, Language language, const ColumnNames& columns = {},
                         std::size_t max_nodes = 0);

/// Appends to `tokens` those of the expression that parse() would give, and gives its needs: for many texts in one
/// array, without an object for each. Errors are those of parse(), and leave `tokens` as they were.
Result<ProgramNeeds> parseTokens(std::string_view text, Language language, const ColumnNames& columns,
                                 std::vector<Token>& tokens, std::size_t max_nodes = 0);

/// Bytes first .. first + size - 1 of a text.
struct TextRange {
  std::size_t first, size;

  friend bool operator==(const TextRange&, const TextRange&) = default;
};
/// Where each token of the infix expression that parse() gives has its own text: a number with its sign, a name, the
/// sign of an operator, the name of a function. Errors are those of parse().
Result<std::vector<TextRange>> tokenRanges(std::string_view text, const ColumnNames& columns = {});

/// Prints so that parse() with the same columns gives the same expression back, bit for bit. Infix has no parenthesis
/// that it could do without. A variable with a name is printed by name, in backquotes where the name is no identifier
/// or is hidden by another word; in JSON by index where the name is not UTF-8.
std::string print(const Expression& expression, Language language, const ColumnNames& columns = {});

/// The form with this name ("infix", "postfix", "prefix", "json"), as --from and --to spell it; none if unknown.
std::optional<Language> findLanguage(std::string_view name) noexcept;

/// The three-line message of an error in `text`: "ORIGIN:LINE:COLUMN: MESSAGE", the line, and a caret below it, without
/// a line end at the end. Lines longer than 120 bytes are shown as a window around the caret, control characters as
/// spaces, bytes that are not UTF-8 as U+FFFD. `origin` may be a file name or "expression 3". Without a Span,
/// "ORIGIN: MESSAGE".
std::string withCaret(const Error& error, std::string_view text, std::string_view origin);

}  // namespace srjit
