// The parser of each text form; parseTokens() of text.h chooses among them. Each appends to `tokens`, also where it
// fails.
#pragma once

#include <string_view>
#include <vector>

#include "ir/text.h"

namespace srjit::text {

Result<ProgramNeeds> parseInfix(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens);
/// The same with the place of each token's text appended to `places`.
Result<ProgramNeeds> parseInfix(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens,
                                std::vector<TextRange>& places);
Result<ProgramNeeds> parsePostfix(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens);
Result<ProgramNeeds> parsePrefix(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens);
Result<ProgramNeeds> parseJson(std::string_view text, const ColumnNames& columns, std::vector<Token>& tokens);

}  // namespace srjit::text
