// The common parts of all readers of text: characters, numbers, words, and the errors about them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "ir/text.h"

namespace srjit::text {

inline bool isSpace(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }
inline bool isDigit(char c) noexcept { return c >= '0' && c <= '9'; }
/// ASCII letters, digits and '_'.
inline bool isWordPart(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || isDigit(c) || c == '_';
}
/// Letters beyond ASCII: what may stand in a name of XML 1.0 (fifth edition, productions 4 and 4a) and the micro sign,
/// but no joiners, superscripts, forms of punctuation, white space or tags.
bool isWideLetter(char32_t code) noexcept;
/// Number of bytes from `offset` that are letters, digits and '_'.
std::size_t scanWord(std::string_view text, std::size_t offset) noexcept;
/// A word that starts with no digit.
bool isIdentifier(std::string_view word) noexcept;

/// Characters that a terminal obeys instead of showing them: control characters, line and paragraph separators, and the
/// marks that turn the direction of the text behind them (Unicode Standard Annex 9, section 2).
bool isControl(char32_t code) noexcept;

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

/// Appends the character at `offset`, or where it is a control character or not UTF-8, "\x09" for each of its bytes.
/// Gives the number of bytes.
std::size_t appendPrintable(std::string& out, std::string_view bytes, std::size_t offset);

/// All of the bytes. Control characters and bytes that are not UTF-8 are escaped.
std::string printable(std::string_view bytes);

/// The same in single quotes for a message, cut after at most 40 bytes but not within a character.
std::string inQuotes(std::string_view bytes);

/// "a, b, 'net weight'": names for a message, those that are no identifiers in quotes; at most 20, and how many there
/// are.
std::string listNames(std::span<const std::string> names);

/// How text that starts at `offset` with no known token is named: "byte 0x01", "U+00D7", "'$'". `length` gets its
/// bytes.
std::string nameCharacter(std::string_view text, std::size_t offset, std::size_t& length);

/// Number of bytes from `offset` that a reader takes for one number, well formed or not ("12ab", "1.2.3", "1e+5").
std::size_t scanNumber(std::string_view text, std::size_t offset) noexcept;

enum class NumberFault { kNone, kMalformed, kOutOfRange };
/// The words of messages about a number that is kOutOfRange.
inline constexpr std::string_view kBeyondDouble = "is out of the range of a double, 4.9e-324 to 1.8e308";

/// Reads all of `digits` as a number, correctly rounded. The one reader of all numbers in text: expressions, parameters
/// and data. One too small for a double is out of its range like one too large, and not 0.
NumberFault readNumber(std::string_view digits, double& value) noexcept;

/// Why readNumber() refused text[offset, offset + length).
Error numberError(std::string_view text, std::size_t offset, std::size_t length);

}  // namespace srjit::text
