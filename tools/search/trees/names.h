// Names of columns in the texts of options. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/text.h"

namespace srjit::search {

/// Bytes of the items of text[begin, end): the parts between commas outside of backquotes, without white space
/// around.
std::vector<TextRange> itemsOf(std::string_view text, std::size_t begin, std::size_t end);

/// The column of this name, bare or in backquotes, or of x0, x1, ... if no column has such a name; below `count`.
std::optional<std::uint32_t> findColumn(std::string_view name, const ColumnNames& columns, std::size_t count);

}  // namespace srjit::search
