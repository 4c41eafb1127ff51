// Parses any bytes in every form. Invariant: they parse or give an error with a position, and a parsed expression can
// be printed in every form and read back.
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "ir/text.h"
#include "tests/fuzz/harness/bytes.h"

namespace {

using namespace srjit;
using fuzz::require;

void checkError(const Error& error, std::string_view text) {
  require(!error.message.empty() && error.where.has_value(), "an error has a message and a place", text);
  require(error.where->line >= 1 && error.where->column >= 1 && error.where->column <= text.size() + 1,
          "the place is in the text", text);
  require(withCaret(error, text, "fuzz").find('^') != std::string::npos, "a place has a caret", text);
}

void checkRoundTrips(const Expression& expression, std::string_view text, const ColumnNames& columns) {
  for (const Language language : kLanguages) {
    const std::string printed = print(expression, language, columns);
    const auto back = parse(printed, language, columns);
    require(back.ok() && *back == expression, "what is printed reads back", text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ColumnNames kColumns({"a", "x0", "p1", "sin", "two words", "inf", "a", "größe", "x[1]", "", "`\\\n\xff"},
                                    {{"y", "target"}, {"x9", "weights"}});
  static const ColumnNames kPlainColumns = {"a", "b c", "x", "p"};
  static const ColumnNames kNoColumns;
  const std::string_view text = fuzz::textOf({data, size});
  // One of them, since each takes as long as all the rest.
  const ColumnNames* const sets[] = {&kNoColumns, &kColumns, &kPlainColumns};
  const ColumnNames& columns = *sets[size % std::size(sets)];
  for (const Language language : kLanguages) {
    const auto expression = parse(text, language, columns);
    if (expression) {
      checkRoundTrips(*expression, text, columns);
    } else {
      checkError(expression.error(), text);
    }
  }
  return 0;
}
