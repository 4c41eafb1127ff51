#include "ir/text.h"

#include <algorithm>

#include <fmt/format.h>

#include "ir/lexer.h"
#include "ir/parsers.h"

namespace srjit {
namespace {

/// A part of a line, with marks where it was cut.
struct Window {
  std::string text;
  std::size_t caret;   ///< characters before the caret
  std::size_t length;  ///< characters above the caret's line of '~', at least 1
};

bool continuesCharacter(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

std::size_t characters(std::string_view bytes) {
  return bytes.size() - static_cast<std::size_t>(std::ranges::count_if(bytes, continuesCharacter));
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
    while (first > 0 && continuesCharacter(line[first])) --first;
    while (last < line.size() && continuesCharacter(line[last])) ++last;
  }
  const std::string_view left = first > 0 ? kCut : "";
  const std::string_view right = last < line.size() ? kCut : "";
  Window window;
  window.text = fmt::format("{}{}{}", left, line.substr(first, last - first), right);
  std::ranges::replace_if(window.text, [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; }, ' ');
  window.caret = left.size() + characters(line.substr(first, column - first));
  window.length = std::max<std::size_t>(1, characters(line.substr(column, std::min(length, last - column))));
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

}  // namespace

Result<Expression> parse(std::string_view text, Language language, const ColumnNames& columns) {
  switch (language) {
    case Language::kInfix:
      return text::parseInfix(text, columns);
    case Language::kPostfix:
      return text::parsePostfix(text, columns);
    case Language::kPrefix:
      return text::parsePrefix(text, columns);
    case Language::kJson:
      return text::parseJson(text, columns);
  }
  return Error{Errc::kInvalid, fmt::format("{} is no text form", static_cast<int>(language)), {}};
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
