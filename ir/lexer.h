// What all readers of text share: characters, numbers, words, and the errors about them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "ir/text.h"

namespace srjit::text {

inline bool isSpace(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }
inline bool isDigit(char c) noexcept { return c >= '0' && c <= '9'; }
/// Letters, digits and '_'.
inline bool isWordPart(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || isDigit(c) || c == '_';
}
bool isIdentifier(std::string_view word) noexcept;

/// Offset of the first byte at or after `offset` that is not white space.
inline std::size_t skipSpace(std::string_view text, std::size_t offset) noexcept {
  while (offset < text.size() && isSpace(text[offset])) ++offset;
  return offset;
}

/// Length of the well-formed UTF-8 character at `offset`, 0 if there is none; `code` gets its code point.
std::size_t readCharacter(std::string_view text, std::size_t offset, char32_t& code) noexcept;

/// An error about text[offset, offset + length).
Error errorAt(std::string_view text, std::size_t offset, std::size_t length, std::string message,
              Errc code = Errc::kSyntax);

/// The bytes in single quotes for a message: control characters and what is not UTF-8 escaped, cut after at most 40
/// bytes but not within a character.
std::string inQuotes(std::string_view bytes);

/// The bytes with the same escapes, but all of them, and without quotes.
std::string printable(std::string_view bytes);

/// How text that starts at `offset` with no known token is named: "byte 0x01", "U+00D7", "'$'". `length` gets its
/// bytes.
std::string nameCharacter(std::string_view text, std::size_t offset, std::size_t& length);

/// Number of bytes from `offset` that a reader takes for one number, well formed or not ("12ab", "1.2.3", "1e+5").
std::size_t scanNumber(std::string_view text, std::size_t offset) noexcept;

/// Reads all of `digits` (no sign) as a number.
bool readNumber(std::string_view digits, double& value) noexcept;

/// Why readNumber() refused text[offset, offset + length).
Error numberError(std::string_view text, std::size_t offset, std::size_t length);

}  // namespace srjit::text
