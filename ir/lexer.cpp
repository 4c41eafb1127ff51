#include "ir/lexer.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace srjit::text {

bool isIdentifier(std::string_view word) noexcept {
  return !word.empty() && !isDigit(word[0]) && std::ranges::all_of(word, isWordPart);
}

std::size_t readCharacter(std::string_view text, std::size_t offset, char32_t& code) noexcept {
  const auto byte = [&](std::size_t i) -> unsigned {
    return offset + i < text.size() ? static_cast<unsigned char>(text[offset + i]) : 0u;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) {
    code = lead;
    return offset < text.size() ? 1 : 0;
  }
  const std::size_t length = lead >= 0xf0 && lead <= 0xf4  ? 4
                             : lead >= 0xe0 && lead < 0xf0 ? 3
                             : lead >= 0xc2 && lead < 0xe0 ? 2
                                                           : 0;
  if (length == 0) return 0;
  code = lead & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  // Overlong forms, surrogates and values past the last code point are no characters.
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return 0;
  return length;
}

Error errorAt(std::string_view text, std::size_t offset, std::size_t length, std::string message, Errc code) {
  const std::string_view before = text.substr(0, offset);
  const auto lines = static_cast<std::size_t>(std::ranges::count(before, '\n'));
  const std::size_t start = before.rfind('\n') + 1;  // npos + 1 is 0
  return Error{code, std::move(message), Span{lines + 1, offset - start + 1, length}};
}

namespace {

/// Appends whole characters as long as they end within `longest` bytes; returns how many bytes that were.
std::size_t appendPrintable(std::string& out, std::string_view bytes, std::size_t longest) {
  std::size_t offset = 0;
  while (offset < bytes.size()) {
    char32_t code = 0;
    const std::size_t length = std::max<std::size_t>(readCharacter(bytes, offset, code), 1);
    if (offset + length > longest) break;
    const bool is_printable = length > 1 ? code >= 0xa0 : bytes[offset] >= ' ' && bytes[offset] <= '~';
    if (is_printable) {
      out += bytes.substr(offset, length);
    } else {
      for (const char c : bytes.substr(offset, length)) {
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
      }
    }
    offset += length;
  }
  return offset;
}

}  // namespace

std::string inQuotes(std::string_view bytes) {
  constexpr std::size_t kLongest = 40;
  std::string out = "'";
  const std::size_t shown = appendPrintable(out, bytes, kLongest);
  return out + (shown < bytes.size() ? "...'" : "'");
}

std::string printable(std::string_view bytes) {
  std::string out;
  appendPrintable(out, bytes, bytes.size());
  return out;
}

std::string nameCharacter(std::string_view text, std::size_t offset, std::size_t& length) {
  char32_t code = 0;
  length = readCharacter(text, offset, code);
  if (length == 1 && code >= ' ' && code <= '~') return inQuotes(text.substr(offset, 1));
  if (length > 1) return fmt::format("U+{:04X}", static_cast<std::uint32_t>(code));
  length = 1;
  return fmt::format("byte 0x{:02x}", static_cast<unsigned char>(text[offset]));
}

std::size_t scanNumber(std::string_view text, std::size_t offset) noexcept {
  std::size_t end = offset;
  while (end < text.size()) {
    const char c = text[end];
    const bool exponent_sign = (c == '+' || c == '-') && end > offset && (text[end - 1] == 'e' || text[end - 1] == 'E');
    if (!isWordPart(c) && c != '.' && !exponent_sign) break;
    ++end;
  }
  return end - offset;
}

bool readNumber(std::string_view digits, double& value) noexcept {
  const char* end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data(), end, value);
  return failure == std::errc() && stop == end;
}

Error numberError(std::string_view text, std::size_t offset, std::size_t length) {
  const std::string_view digits = text.substr(offset, length);
  double value = 0;
  const auto [stop, failure] = std::from_chars(digits.data(), digits.data() + length, value);
  if (failure == std::errc::result_out_of_range && stop == digits.data() + length) {
    return errorAt(text, offset, length,
                   fmt::format("number {} is out of the range of a double, 4.9e-324 to 1.8e308", inQuotes(digits)));
  }
  return errorAt(text, offset, length,
                 fmt::format("malformed number {}; expected digits such as 12, 0.5 or 1e-3", inQuotes(digits)));
}

}  // namespace srjit::text
