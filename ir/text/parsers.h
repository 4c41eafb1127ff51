// The parser of each text form; parseTokens() of text.h chooses among them. Each appends to `tokens`, also where it
// fails. `max_nodes` is that of parse().
#pragma once

#include <string_view>
#include <vector>

#include "ir/text.h"

namespace srjit::text {

Result<ProgramNeeds> parseInfix(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens,
                                std::size_t max_nodes = 0);
/// The same with the place of each token's text appended to `places`.
Result<ProgramNeeds> parseInfix(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens,
                                std::vector<TextRange>& places);
Result<ProgramNeeds> parsePostfix(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens,
                                  std::size_t max_nodes = 0);
Result<ProgramNeeds> parsePrefix(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens,
                                 std::size_t max_nodes = 0);
Result<ProgramNeeds> parseJson(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens,
                               std::size_t max_nodes = 0);

}  // namespace srjit::text
