// The parser of each text form; parse() of text.h chooses among them.
#pragma once

#include <string_view>

#include "ir/text.h"

namespace srjit::text {

Result<Expression> parseInfix(std::string_view text, const ColumnNames& columns);
Result<Expression> parsePostfix(std::string_view text, const ColumnNames& columns);
Result<Expression> parsePrefix(std::string_view text, const ColumnNames& columns);
Result<Expression> parseJson(std::string_view text, const ColumnNames& columns);

}  // namespace srjit::text
