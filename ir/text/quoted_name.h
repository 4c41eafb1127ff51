// Column names in backquotes, which any name can be written in.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "ir/error.h"

namespace srjit::text {

inline constexpr char kBackquote = '`';

/// Number of bytes from the backquote at `offset` to the one that closes it, or to the end of the text.
std::size_t scanQuotedName(std::string_view text, std::size_t offset) noexcept;

/// The name that text[offset, offset + length) stands for, which starts with a backquote. kSyntax if it is not closed,
/// closed too early, holds a control character, or a backslash that starts no escape.
Result<std::string> readQuotedName(std::string_view text, std::size_t offset, std::size_t length);

/// Appends `name` in backquotes. Bytes that cannot be printed are escaped, so that the whole is one line of UTF-8.
void appendQuotedName(std::string& out, std::string_view name);

}  // namespace srjit::text
