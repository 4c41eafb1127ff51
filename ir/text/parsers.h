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

/// The error (kSyntax) for `text` that nlohmann's parser refused, in our own words. `what` is the text of the parser's
/// exception, and [offset, offset + length) the token at fault; where the text ends too early, the place is its end.
Error malformedJson(std::string_view text, std::size_t offset, std::size_t length, std::string_view what);

}  // namespace srjit::text
