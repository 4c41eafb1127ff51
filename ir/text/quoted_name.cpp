#include "ir/text/quoted_name.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "ir/text/lexer.h"

namespace srjit::text {
namespace {

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

}  // namespace

std::size_t scanQuotedName(std::string_view text, std::size_t offset) noexcept {
  std::size_t end = offset + 1;
  while (end < text.size() && text[end] != kBackquote) end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size()) - offset;
}

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

void appendQuotedName(std::string& out, std::string_view name) {
  out += kBackquote;
  for (std::size_t at = 0; at < name.size();) {
    if (name[at] == '\\' || name[at] == kBackquote) out += '\\';
    at += appendPrintable(out, name, at);
  }
  out += kBackquote;
}

}  // namespace srjit::text
