#include "ir/text/lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>

#include <fmt/format.h>

namespace srjit::text {

bool isWideLetter(char32_t code) noexcept {
  struct Range {
    char32_t first, last;
  };
  constexpr Range kLetters[] = {{0xb5, 0xb5},     {0xc0, 0xd6},     {0xd8, 0xf6},     {0xf8, 0x37d},
                                {0x37f, 0x61b},   {0x61d, 0x167f},  {0x1681, 0x1fff}, {0x2080, 0x218f},
                                {0x2c00, 0x2fef}, {0x3005, 0x3007}, {0x3021, 0x302f}, {0x3031, 0xd7ff},
                                {0xf900, 0xfdcf}, {0xfdf0, 0xfdfb}, {0xfe70, 0xfefc}, {0xff10, 0xff19},
                                {0xff21, 0xff3a}, {0xff41, 0xff5a}, {0xff66, 0xffdc}, {0x10000, 0xdffff}};
  return std::ranges::any_of(kLetters, [&](const Range& range) { return code >= range.first && code <= range.last; });
}

std::size_t scanWord(std::string_view text, std::size_t offset) noexcept {
  std::size_t end = offset;
  while (end < text.size()) {
    if (isWordPart(text[end])) {
      ++end;
      continue;
    }
    char32_t code = 0;
    const std::size_t length = readCharacter(text, end, code);
    if (length < 2 || !isWideLetter(code)) break;
    end += length;
  }
  return end - offset;
}

bool isIdentifier(std::string_view word) noexcept {
  return !word.empty() && !isDigit(word[0]) && scanWord(word, 0) == word.size();
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

bool isControl(char32_t code) noexcept {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

std::size_t appendPrintable(std::string& out, std::string_view bytes, std::size_t offset) {
  char32_t code = 0;
  const std::size_t length = std::max<std::size_t>(readCharacter(bytes, offset, code), 1);
  const bool shown = readCharacter(bytes, offset, code) > 0 && !isControl(code);
  if (shown) {
    out += bytes.substr(offset, length);
  } else {
    for (const char c : bytes.substr(offset, length)) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return length;
}

std::string printable(std::string_view bytes) {
  std::string out;
  for (std::size_t offset = 0; offset < bytes.size();) offset += appendPrintable(out, bytes, offset);
  return out;
}

std::string inQuotes(std::string_view bytes) {
  constexpr std::size_t kLongest = 40;
  std::string out = "'";
  std::size_t offset = 0;
  while (offset < bytes.size()) {
    char32_t code = 0;
    if (offset + std::max<std::size_t>(readCharacter(bytes, offset, code), 1) > kLongest) break;
    offset += appendPrintable(out, bytes, offset);
  }
  return out + (offset < bytes.size() ? "...'" : "'");
}

std::string listNames(std::span<const std::string> names) {
  constexpr std::size_t kMost = 20, kLongest = 40;
  std::string list;
  for (const std::string& name : names.first(std::min(names.size(), kMost))) {
    if (!list.empty()) list += ", ";
    list += name.size() <= kLongest && isIdentifier(name) ? name : inQuotes(name);
  }
  if (names.size() > kMost) list += fmt::format(", ... ({} in all)", names.size());
  return list;
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
  for (;;) {
    end += scanWord(text, end);
    if (end == text.size()) break;
    const char c = text[end];
    const bool exponent_sign = (c == '+' || c == '-') && end > offset && (text[end - 1] == 'e' || text[end - 1] == 'E');
    if (c != '.' && !exponent_sign) break;
    ++end;
  }
  return end - offset;
}

namespace {

/// Reads digits, with at most one point among them, so few that both operands of the quotient are exact in a double and
/// it is the number, correctly rounded (W. D. Clinger, "How to Read Floating Point Numbers Accurately", 1990). False
/// for anything else.
bool readShortDecimal(std::string_view text, double& value) noexcept {
  constexpr double kPowers[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
  if (text.size() > std::size(kPowers)) return false;
  std::uint64_t number = 0;
  std::size_t digits = 0, decimals = 0;
  bool has_point = false;
  for (const char c : text) {
    if (c == '.' && !has_point) {
      has_point = true;
      continue;
    }
    if (!isDigit(c) || ++digits == std::size(kPowers)) return false;
    number = number * 10 + static_cast<std::uint64_t>(c - '0');
    decimals += has_point ? 1 : 0;
  }
  if (digits == 0) return false;
  value = static_cast<double>(number) / kPowers[decimals];
  return true;
}

}  // namespace

NumberFault readNumber(std::string_view digits, double& value) noexcept {
  if (readShortDecimal(digits, value)) return NumberFault::kNone;
  const char* end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data(), end, value);
  if (stop != end || failure == std::errc::invalid_argument) return NumberFault::kMalformed;
  return failure == std::errc() ? NumberFault::kNone : NumberFault::kOutOfRange;
}

Error numberError(std::string_view text, std::size_t offset, std::size_t length) {
  const std::string_view digits = text.substr(offset, length);
  double value = 0;
  if (readNumber(digits, value) == NumberFault::kOutOfRange) {
    return errorAt(text, offset, length, fmt::format("number {} {}", inQuotes(digits), kBeyondDouble));
  }
  return errorAt(text, offset, length,
                 fmt::format("malformed number {}; expected digits such as 12, 0.5 or 1e-3", inQuotes(digits)));
}

}  // namespace srjit::text
