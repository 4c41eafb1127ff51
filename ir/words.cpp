#include "ir/words.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numbers>
#include <unordered_map>

#include <fmt/format.h>

#include "ir/lexer.h"

namespace srjit {

struct ColumnNames::Body {
  std::vector<std::string> names;
  std::unordered_map<std::string_view, std::uint32_t> index;
};

ColumnNames::ColumnNames(std::vector<std::string> names) {
  if (names.empty()) return;
  auto body = std::make_shared<Body>();
  body->names = std::move(names);
  for (std::size_t i = 0; i < body->names.size(); ++i)
    body->index.emplace(body->names[i], static_cast<std::uint32_t>(i));
  body_ = std::move(body);
}

std::size_t ColumnNames::size() const noexcept { return body_ ? body_->names.size() : 0; }
const std::string& ColumnNames::operator[](std::size_t column) const noexcept { return body_->names[column]; }

std::optional<std::uint32_t> ColumnNames::find(std::string_view name) const noexcept {
  if (!body_) return std::nullopt;
  const auto found = body_->index.find(name);
  if (found == body_->index.end()) return std::nullopt;
  return found->second;
}

namespace text {
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

/// "; did you mean 'a', 'b' or 'c'?" with the nearest of the known words, or nothing.
std::string suggest(std::string_view word, bool functions, bool names, const ColumnNames& columns) {
  if (word.size() > kLongestSuggestion) return {};
  if (functions) {
    for (const auto& [foreign, ours] : kForeignNames) {
      if (word == foreign) return fmt::format("; did you mean '{}'?", ours);
    }
  }
  std::size_t best = std::max<std::size_t>(1, word.size() / 3);
  std::vector<std::string_view> nearest;
  const auto offer = [&](std::string_view known) {
    if (known.empty() || known.size() > kLongestSuggestion) return;
    const std::size_t d = distance(word, known);
    if (d > best || d >= word.size() || std::ranges::count(nearest, known) != 0) return;
    if (d < best) nearest.clear();
    best = d;
    if (nearest.size() < 3) nearest.push_back(known);
  };
  for (std::size_t i = 0; i < columns.size() && names; ++i) offer(columns[i]);
  for (const OpInfo& info : allOps()) {
    if (functions) offer(info.name);
  }
  if (nearest.empty()) return {};
  std::string out = "; did you mean " + inQuotes(nearest[0]);
  for (std::size_t i = 1; i < nearest.size(); ++i)
    out += (i + 1 < nearest.size() ? ", " : " or ") + inQuotes(nearest[i]);
  return out + "?";
}

}  // namespace

WordKind readWord(std::string_view word, const ColumnNames& columns, Token& token) noexcept {
  if (word == "inf" || word == "nan") {
    using Limits = std::numeric_limits<double>;
    token = Token::constant(word == "inf" ? Limits::infinity() : Limits::quiet_NaN());
    return WordKind::kOperand;
  }
  if (const auto column = columns.find(word)) {
    token = Token::variable(*column);
    return WordKind::kOperand;
  }
  if (word.size() > 1 && (word[0] == 'x' || word[0] == 'p') && std::ranges::all_of(word.substr(1), isDigit)) {
    std::uint32_t index = 0;
    for (const char c : word.substr(1)) {
      index = index * 10 + static_cast<std::uint32_t>(c - '0');
      if (index > Expression::kMaxIndex) return WordKind::kTooLarge;
    }
    token = word[0] == 'x' ? Token::variable(index) : Token::parameter(index);
    return WordKind::kOperand;
  }
  if (word == "pi") {
    token = Token::constant(std::numbers::pi);
    return WordKind::kOperand;
  }
  return WordKind::kUnknown;
}

void appendWord(std::string& out, const Token& token, const ColumnNames& columns, bool operators_win) {
  const bool variable = token.kind == Token::Kind::kVariable;
  if (variable && token.index < columns.size()) {
    const std::string& name = columns[token.index];
    const bool hidden = name == "inf" || name == "nan" || (operators_win && findOp(name).has_value());
    if (!hidden && isIdentifier(name) && columns.find(name) == token.index) {
      out += name;
      return;
    }
  }
  const fmt::format_int index(token.index);
  std::string word = (variable ? "x" : "p") + index.str();
  while (columns.find(word)) word.insert(1, "0");
  out += word;
}

Error wordError(std::string_view text, std::size_t offset, std::string_view word, std::string_view what, WordKind kind,
                const ColumnNames& columns) {
  if (kind == WordKind::kTooLarge) {
    return errorAt(text, offset, word.size(),
                   fmt::format("{} is above the largest index, {}", inQuotes(word), Expression::kMaxIndex),
                   Errc::kInvalid);
  }
  const bool functions = what == "function" || what == "word";
  const bool names = what != "function";
  std::string hint = suggest(word, functions, names, columns);
  if (hint.empty() && what == "name") hint = "; expected x<i>, p<j>, a column name, pi, inf, nan or a function";
  if (hint.empty() && what == "word") hint = "; expected x<i>, p<j>, a column name, a number or an operator";
  return errorAt(text, offset, word.size(), fmt::format("unknown {} {}{}", what, inQuotes(word), hint));
}

}  // namespace text
}  // namespace srjit
