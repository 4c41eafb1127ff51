#include "ir/text.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "ir/text/parsers.h"

namespace srjit {
namespace {

/// A part of a line, with marks where it was cut.
struct Window {
  std::string text;
  std::size_t caret;   ///< characters before the caret
  std::size_t length;  ///< characters above the caret's line of '~', at least 1
};

constexpr std::size_t kLongestTail = 3;  // bytes of a character behind its first

/// Appends `bytes` with a space for each control character, and U+FFFD for each byte that is not UTF-8; gives the
/// number of characters.
std::size_t appendShown(std::string& out, std::string_view bytes) {
  std::size_t characters = 0;
  for (std::size_t at = 0; at < bytes.size(); ++characters) {
    char32_t code = 0;
    const std::size_t length = text::readCharacter(bytes, at, code);
    if (length == 0) {
      out += "\xef\xbf\xbd";
    } else if (text::isControl(code)) {
      out += ' ';
    } else {
      out += bytes.substr(at, length);
    }
    at += std::max<std::size_t>(length, 1);
  }
  return characters;
}

/// `at`, or where it is within a character of several bytes, the first of them.
std::size_t startOfCharacter(std::string_view line, std::size_t at) {
  char32_t code = 0;
  for (std::size_t back = 1; back <= std::min(kLongestTail, at); ++back) {
    if (text::readCharacter(line, at - back, code) > back) return at - back;
  }
  return at;
}

Window windowOf(std::string_view line, std::size_t column, std::size_t length) {
  constexpr std::size_t kWidest = 120;
  constexpr std::string_view kCut = "...";
  column = std::min(column, line.size());
  std::size_t first = 0;
  std::size_t last = line.size();
  if (line.size() > kWidest) {
    first = column > kWidest / 2 ? std::min(column - kWidest / 2, line.size() - kWidest) : 0;
    last = first + kWidest;
    first = startOfCharacter(line, first);
    last = startOfCharacter(line, last);
  }
  column = startOfCharacter(line, column);
  const std::size_t end = std::max(startOfCharacter(line, column + std::min(length, last - column)), column);
  Window window;
  window.text = first > 0 ? kCut : "";
  window.caret = window.text.size();
  window.caret += appendShown(window.text, line.substr(first, column - first));
  window.length = std::max<std::size_t>(1, appendShown(window.text, line.substr(column, end - column)));
  appendShown(window.text, line.substr(end, last - end));
  if (last < line.size()) window.text += kCut;
  return window;
}

std::string_view lineOf(std::string_view text, std::size_t number) {
  for (; number > 1; --number) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  text = text.substr(0, text.find('\n'));
  if (text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

Result<ProgramNeeds> parseInto(std::vector<Token>& tokens, std::string_view text, Language language,
                               const ColumnNames& columns, std::size_t max_nodes) {
  switch (language) {
    case Language::kInfix:
      return text::parseInfix(text, columns, tokens, max_nodes);
    case Language::kPostfix:
      return text::parsePostfix(text, columns, tokens, max_nodes);
    case Language::kPrefix:
      return text::parsePrefix(text, columns, tokens, max_nodes);
    case Language::kJson:
      return text::parseJson(text, columns, tokens, max_nodes);
  }
  return Error{Errc::kInvalid, fmt::format("{} is no text form", static_cast<int>(language)), {}};
}

}  // namespace

struct ColumnNames::Body {
  std::vector<std::string> names;
  std::vector<OtherColumn> others;
  std::unordered_map<std::string_view, std::size_t> index;  ///< those of `others` count on behind `names`
  std::vector<std::string> x_words, p_words;

  void enter(std::string_view name, std::size_t number) {
    index.emplace(name, number);
    if (name.size() < 2 || !std::ranges::all_of(name.substr(1), text::isDigit)) return;
    if (name[0] == 'x') x_words.emplace_back(name);
    if (name[0] == 'p') p_words.emplace_back(name);
  }
};

ColumnNames::ColumnNames(std::vector<std::string> names, std::vector<OtherColumn> others) {
  if (names.empty() && others.empty()) return;
  auto body = std::make_shared<Body>();
  body->names = std::move(names);
  body->others = std::move(others);
  for (std::size_t i = 0; i < body->names.size(); ++i) body->enter(body->names[i], i);
  for (std::size_t i = 0; i < body->others.size(); ++i) body->enter(body->others[i].name, body->names.size() + i);
  body_ = std::move(body);
}

std::span<const std::string> ColumnNames::names() const noexcept {
  return body_ ? std::span<const std::string>(body_->names) : std::span<const std::string>();
}

std::optional<std::uint32_t> ColumnNames::find(std::string_view name) const noexcept {
  if (!body_) return std::nullopt;
  const auto found = body_->index.find(name);
  if (found == body_->index.end() || found->second >= body_->names.size()) return std::nullopt;
  return static_cast<std::uint32_t>(found->second);
}

std::string_view ColumnNames::roleOf(std::string_view name) const noexcept {
  if (!body_) return {};
  const auto found = body_->index.find(name);
  if (found == body_->index.end() || found->second < body_->names.size()) return {};
  return body_->others[found->second - body_->names.size()].role;
}

std::string ColumnNames::describe(std::size_t column) const {
  if (column >= size()) return fmt::format("column x{}", column);
  return fmt::format("column {} (x{})", text::inQuotes((*this)[column]), column);
}

std::span<const std::string> ColumnNames::indexWords(char letter) const noexcept {
  if (!body_) return {};
  return letter == 'x' ? body_->x_words : body_->p_words;
}

Result<Expression> parse(std::string_view text, Language language, const ColumnNames& columns, std::size_t max_nodes) {
  // The memory for a short text is kept for the next one: allocating it takes as long as reading some tokens.
  constexpr std::size_t kShort = 4096;
  thread_local std::vector<Token> kept;
  std::vector<Token> own;
  std::vector<Token>& tokens = text.size() <= kShort ? kept : own;
  tokens.clear();
  Result<ProgramNeeds> needs = parseInto(tokens, text, language, columns, max_nodes);
  if (!needs) return std::move(needs).error();
  return Expression(tokens, *needs);
}

Result<std::vector<TextRange>> tokenRanges(std::string_view text, const ColumnNames& columns) {
  std::vector<Token> tokens;
  std::vector<TextRange> places;
  const Result<ProgramNeeds> needs = text::parseInfix(text, columns, tokens, 0, &places);
  if (!needs) return needs.error();
  return places;
}

Result<ProgramNeeds> parseTokens(std::string_view text, Language language, const ColumnNames& columns,
                                 std::vector<Token>& tokens, std::size_t max_nodes) {
  const std::size_t before = tokens.size();
  Result<ProgramNeeds> needs = parseInto(tokens, text, language, columns, max_nodes);
  if (!needs) tokens.resize(before);
  return needs;
}

std::optional<Language> findLanguage(std::string_view name) noexcept {
  if (name == "infix") return Language::kInfix;
  if (name == "postfix") return Language::kPostfix;
  if (name == "prefix") return Language::kPrefix;
  if (name == "json") return Language::kJson;
  return std::nullopt;
}

std::string withCaret(const Error& error, std::string_view text, std::string_view origin) {
  if (!error.where) return fmt::format("{}: {}", origin, error.message);
  const Span& where = *error.where;
  const std::size_t column = where.column == 0 ? 0 : where.column - 1;
  const Window window = windowOf(lineOf(text, where.line), column, where.length);
  return fmt::format("{}:{}:{}: {}\n{}\n{}^{}", origin, where.line, where.column, error.message, window.text,
                     std::string(window.caret, ' '), std::string(window.length - 1, '~'));
}

}  // namespace srjit
