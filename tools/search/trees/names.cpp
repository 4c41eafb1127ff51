#include "tools/search/trees/names.h"

#include <algorithm>

#include "ir/text/lexer.h"
#include "ir/text/words.h"

namespace srjit::search {

std::vector<TextRange> itemsOf(std::string_view text, std::size_t begin, std::size_t end) {
  std::vector<TextRange> items;
  for (std::size_t at = begin; at <= end; ++at) {
    if (at < end && text[at] == text::kBackquote) at += text::scanQuotedName(text, at) - 1;
    if (at < end && text[at] != ',') continue;
    const std::size_t stop = std::min(at, end);
    std::size_t first = std::min(text::skipSpace(text, begin), stop), last = stop;
    while (last > first && text::isSpace(text[last - 1])) --last;
    items.push_back({first, last - first});
    begin = at + 1;
  }
  return items;
}

std::optional<std::uint32_t> findColumn(std::string_view name, const ColumnNames& columns, std::size_t count) {
  Token token;
  if (name.starts_with(text::kBackquote) && text::scanQuotedName(name, 0) == name.size()) {
    const Result<Token> quoted = text::readQuotedWord(name, 0, name.size(), columns);
    if (!quoted) return {};
    token = *quoted;
  } else if (text::readWord(name, columns, token) != text::WordKind::kOperand) {
    return {};
  }
  const bool is_column = token.kind == Token::Kind::kVariable && token.index < count;
  return is_column ? std::optional(token.index) : std::nullopt;
}

}  // namespace srjit::search
