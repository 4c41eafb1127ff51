#include "ir/text/words.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

#include <fmt/format.h>

#include "ir/ops.h"
#include "ir/text/lexer.h"

namespace srjit::text {
namespace {

/// The usual names of other systems for operators of the table.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kForeignNames = {{
    {"ln", "log"},
    {"arcsin", "asin"},
    {"arccos", "acos"},
    {"arctan", "atan"},
    {"arctan2", "atan2"},
    {"arcsinh", "asinh"},
    {"arccosh", "acosh"},
    {"arctanh", "atanh"},
    {"sgn", "sign"},
    {"fabs", "abs"},
    {"sigmoid", "logistic"},
    {"power", "pow"},
}};

constexpr std::size_t kLongestSuggestion = 32;

/// Optimal string alignment distance: insertions, deletions, replacements and swaps of neighbours.
std::size_t distance(std::string_view a, std::string_view b) {
  std::array<std::array<std::size_t, kLongestSuggestion + 1>, 3> rows{};
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& above = rows[(i + 2) % 3];
    const auto& second_above = rows[(i + 1) % 3];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], second_above[j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

/// Appends the byte or character that the escape at `offset`, a backslash, stands for. Gives its length, 0 if it is
/// none.
std::size_t readEscape(std::string_view text, std::size_t offset, std::string& name) {
  const std::string_view escape = text.substr(offset, 4);
  if (escape.size() >= 2 && (escape[1] == '\\' || escape[1] == kBackquote)) {
    name += escape[1];
    return 2;
  }
  if (escape.size() < 4 || escape[1] != 'x') return 0;
  unsigned char byte = 0;
  const auto [end, failure] = std::from_chars(escape.data() + 2, escape.data() + 4, byte, 16);
  if (failure != std::errc() || end != escape.data() + 4) return 0;
  name += static_cast<char>(byte);
  return 4;
}

/// The name that text[offset, offset + length) stands for, which starts with a backquote. kSyntax if it is not closed,
/// closed too early, holds a control character, or a backslash that starts no escape.
Result<std::string> readQuotedName(std::string_view text, std::size_t offset, std::size_t length) {
  const std::string_view quoted = text.substr(0, offset + length);
  std::string name;
  std::size_t at = offset + 1;
  while (at < quoted.size() && quoted[at] != kBackquote) {
    const char c = quoted[at];
    if ((c >= 0 && c < ' ') || c == '\x7f') {
      return errorAt(text, at, 1, fmt::format("byte 0x{0:02x} in a quoted name; write '\\x{0:02x}'", c));
    }
    if (c != '\\') {
      name += c;
      ++at;
      continue;
    }
    const std::size_t escape = readEscape(quoted, at, name);
    if (escape == 0) {
      char32_t code = 0;
      const std::string_view found =
          quoted.substr(at, 1 + std::max<std::size_t>(readCharacter(quoted, at + 1, code), 1));
      return errorAt(text, at, found.size(),
                     fmt::format("{} is no escape; a quoted name has '\\\\' for a backslash, '\\`' for a backquote and "
                                 "'\\x09' for any byte",
                                 inQuotes(found)));
    }
    at += escape;
  }
  if (at >= quoted.size()) {
    return errorAt(text, offset, 1, "expected another '`' before the end of the text, to close the name");
  }
  if (++at < quoted.size()) {
    return errorAt(text, at, quoted.size() - at,
                   fmt::format("expected white space before {}", inQuotes(quoted.substr(at))));
  }
  return name;
}

/// Appends `name` in backquotes. Bytes that cannot be printed are escaped, so that the whole is one line of UTF-8.
void appendQuotedName(std::string& out, std::string_view name) {
  out += kBackquote;
  for (std::size_t at = 0; at < name.size();) {
    if (name[at] == '\\' || name[at] == kBackquote) out += '\\';
    at += appendPrintable(out, name, at);
  }
  out += kBackquote;
}

/// A column name as the forms other than JSON write it.
std::string wordFor(const std::string& name) {
  if (isIdentifier(name)) return name;
  std::string word;
  appendQuotedName(word, name);
  return word;
}

/// "; did you mean 'a', 'b' or 'c'?" with the nearest of the known words, or nothing. `bare`: as JSON has them.
std::string suggest(std::string_view word, bool functions, bool names, bool bare, const ColumnNames& columns) {
  if (word.size() > kLongestSuggestion) return {};
  if (functions) {
    for (const auto& [foreign, ours] : kForeignNames) {
      if (word == foreign) return fmt::format("; did you mean '{}'?", ours);
    }
  }
  std::size_t best = std::max<std::size_t>(1, word.size() / 3);
  std::vector<std::string> nearest;
  const auto offer = [&](std::string_view known, std::size_t d) {
    if (d > best || d >= std::max<std::size_t>(word.size(), 1)) return;
    if (d < best) nearest.clear();
    best = d;
    std::string shown = bare ? std::string(known) : wordFor(std::string(known));
    if (nearest.size() < 3 && std::ranges::count(nearest, shown) == 0) nearest.push_back(std::move(shown));
  };
  const auto offerNear = [&](std::string_view known) {
    if (known.empty() || known.size() > kLongestSuggestion) return;
    // The distance is no less than the difference in length, which is known at once.
    const std::size_t least = std::max(known.size(), word.size()) - std::min(known.size(), word.size());
    if (least <= best) offer(known, distance(word, known));
  };
  for (const std::string& name : names ? columns.names() : std::span<const std::string>()) {
    offerNear(name);
    // "net" of "net weight", which must be quoted
    if (name.size() <= kLongestSuggestion && name.starts_with(word) && !isIdentifier(name)) offer(name, 0);
  }
  for (const OpInfo& info : allOps()) {
    if (functions) offerNear(info.name);
  }
  if (nearest.empty()) return {};
  std::string out = "; did you mean " + inQuotes(nearest[0]);
  for (std::size_t i = 1; i < nearest.size(); ++i)
    out += (i + 1 < nearest.size() ? ", " : " or ") + inQuotes(nearest[i]);
  return out + "?";
}

/// x<i>, x[i], p<j> or p[j].
struct IndexWord {
  char letter;
  bool in_brackets;
  std::optional<std::uint32_t> index;  ///< empty above Expression::kMaxIndex
};

std::optional<IndexWord> readIndexWord(std::string_view word) noexcept {
  if (word.size() < 2 || (word[0] != 'x' && word[0] != 'p')) return std::nullopt;
  const bool in_brackets = word.size() > 3 && word[1] == '[' && word.back() == ']';
  const std::string_view digits = in_brackets ? word.substr(2, word.size() - 3) : word.substr(1);
  if (!std::ranges::all_of(digits, isDigit)) return std::nullopt;
  std::uint32_t index = 0;
  for (const char c : digits) {
    index = index * 10 + static_cast<std::uint32_t>(c - '0');
    if (index > Expression::kMaxIndex) return IndexWord{word[0], in_brackets, std::nullopt};
  }
  return IndexWord{word[0], in_brackets, index};
}

WordKind readIndex(const IndexWord& word, Token& token) noexcept {
  if (!word.index) return WordKind::kTooLarge;
  token = word.letter == 'x' ? Token::variable(*word.index) : Token::parameter(*word.index);
  return WordKind::kOperand;
}

/// Why `word` is no index where columns have names of its form.
std::string noIndexMessage(std::string_view word, const ColumnNames& columns) {
  const auto taken = columns.indexWords(word[0]);
  return fmt::format("{} names no column; since {} called {}, words of this form are names; {}; {}[0] is the first {}",
                     inQuotes(word), taken.size() == 1 ? "a column is" : "columns are", listNames(taken),
                     columns.empty() ? "no column is a variable" : "the columns are " + listNames(columns.names()),
                     word[0], word[0] == 'x' ? "column" : "parameter");
}

/// The hint for an unknown word that resembles no other.
std::string_view expectedWords(std::string_view what) {
  if (what == "name") return "; expected x<i>, p<j>, a column name, pi, inf, nan or a function";
  return what == "word" ? "; expected x<i>, p<j>, a column name, a number or an operator" : "";
}

}  // namespace

std::size_t scanQuotedName(std::string_view text, std::size_t offset) noexcept {
  std::size_t end = offset + 1;
  while (end < text.size() && text[end] != kBackquote) end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size()) - offset;
}

WordKind readWord(std::string_view word, const ColumnNames& columns, Token& token) noexcept {
  if (word == "inf" || word == "nan") {
    using Limits = std::numeric_limits<double>;
    token = Token::constant(word == "inf" ? Limits::infinity() : Limits::quiet_NaN());
    return WordKind::kOperand;
  }
  const std::optional<IndexWord> indexed = readIndexWord(word);
  if (indexed && indexed->in_brackets) return readIndex(*indexed, token);
  if (const auto column = columns.find(word)) {
    token = Token::variable(*column);
    return WordKind::kOperand;
  }
  if (!columns.roleOf(word).empty()) return WordKind::kNoVariable;
  if (indexed) return columns.indexWords(word[0]).empty() ? readIndex(*indexed, token) : WordKind::kNoIndex;
  if (word == "pi") {
    token = Token::constant(std::numbers::pi);
    return WordKind::kOperand;
  }
  return WordKind::kUnknown;
}

Token negated(const Token& constant) noexcept {
  return std::isnan(constant.value) ? constant : Token::constant(-constant.value);
}

std::size_t scanOperand(std::string_view text, std::size_t offset) noexcept {
  const std::size_t end = offset + scanWord(text, offset);
  if (end != offset + 1 || end == text.size() || text[end] != '[') return end - offset;
  std::size_t close = end + 1;
  while (close < text.size() && isDigit(text[close])) ++close;
  const bool closed = close > end + 1 && close < text.size() && text[close] == ']';
  return closed && readIndexWord(text.substr(offset, close + 1 - offset)) ? close + 1 - offset : end - offset;
}

Result<Token> readQuotedWord(std::string_view text, std::size_t offset, std::size_t length,
                             const ColumnNames& columns) {
  const Result<std::string> name = readQuotedName(text, offset, length);
  if (!name) return name.error();
  if (const auto column = columns.find(*name)) return Token::variable(*column);
  const WordKind kind = columns.roleOf(*name).empty() ? WordKind::kUnknown : WordKind::kNoVariable;
  Error error = wordError(text, offset, *name, "column", kind, columns);
  error.where->length = length;
  return error;
}

void appendWord(std::string& out, const Token& token, const ColumnNames& columns, bool operators_win) {
  const bool variable = token.kind == Token::Kind::kVariable;
  if (variable && token.index < columns.size() && columns.find(columns[token.index]) == token.index) {
    const std::string& name = columns[token.index];
    const bool hidden = name == "inf" || name == "nan" || (operators_win && findOp(name).has_value());
    if (!hidden && isIdentifier(name)) {
      out += name;
    } else {
      appendQuotedName(out, name);
    }
    return;
  }
  const char letter = variable ? 'x' : 'p';
  const fmt::format_int index(token.index);
  const bool plain = columns.indexWords(letter).empty();
  out += letter;
  if (!plain) out += '[';
  out.append(index.data(), index.size());
  if (!plain) out += ']';
}

Error wordError(std::string_view text, std::size_t offset, std::string_view word, std::string_view what, WordKind kind,
                const ColumnNames& columns) {
  const auto fail = [&](std::string message, Errc code = Errc::kSyntax) {
    return errorAt(text, offset, word.size(), std::move(message), code);
  };
  if (kind == WordKind::kTooLarge) {
    return fail(fmt::format("{} is above the largest index, {}", inQuotes(word), Expression::kMaxIndex),
                Errc::kInvalid);
  }
  if (kind == WordKind::kNoVariable) {
    return fail(fmt::format("{} is the {} column, not a variable", inQuotes(word), columns.roleOf(word)));
  }
  if (kind == WordKind::kNoIndex) return fail(noIndexMessage(word, columns));
  const bool functions = what == "function" || what == "word";
  std::string hint = suggest(word, functions, what != "function", what == "column", columns);
  if (hint.empty()) {
    hint = expectedWords(what);
    if (what != "function" && !columns.empty()) hint += "; the columns are " + listNames(columns.names());
  }
  return fail(fmt::format("unknown {} {}{}", what, inQuotes(word), hint));
}

std::string numberText(double value, Precision precision) {
  return withZeroOf(precision, [&]<class T>(T) { return fmt::format("{}", static_cast<T>(value)); });
}

}  // namespace srjit::text
