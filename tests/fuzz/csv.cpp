// Reads any bytes as a table in CSV, as a header, as a list of expressions, and as a number. Invariants: a table is
// rectangular and reads back from what is written of it; whatever is refused has a place.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/fuzz/harness/bytes.h"
#include "tools/files/data.h"
#include "tools/files/expressions.h"

namespace {

using namespace srjit;
using fuzz::require;

constexpr std::string_view kOrigin = "fuzz";

void checkError(const Error& error, std::string_view text) {
  require(error.code == Errc::kIo, "an error is one of a file", text);
  require(error.message.starts_with("fuzz:"), "an error names the file and the place", error.message);
}

std::string csvOf(const DataTable& table) {
  std::string text;
  for (const std::string& name : table.names) {
    text += text.empty() ? "\"" : ",\"";
    for (const char c : name) text += c == '"' ? "\"\"" : std::string(1, c);
    text += '"';
  }
  text += "\r\n";
  for (std::size_t r = 0; r < table.rows(); ++r) {
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      if (c != 0) text += ',';
      appendNumber(text, table.columns[c][r], Precision::kF64);
    }
    text += '\n';
  }
  return text;
}

bool sameTable(const DataTable& a, const DataTable& b) {
  if (a.names != b.names || a.columns.size() != b.columns.size() || a.rows() != b.rows()) return false;
  for (std::size_t c = 0; c < a.columns.size(); ++c) {
    for (std::size_t r = 0; r < a.rows(); ++r) {
      if (!sameBits(a.columns[c][r], b.columns[c][r])) return false;
    }
  }
  return true;
}

void checkTable(std::string_view text) {
  const auto table = parseCsv(text, kOrigin);
  if (!table) return checkError(table.error(), text);
  require(table->rows() > 0 && table->names.size() == table->columns.size(), "a table has rows and names", text);
  for (const auto& column : table->columns) require(column.size() == table->rows(), "columns are as long", text);
  const std::string written = csvOf(*table);
  const auto back = parseCsv(written, kOrigin);
  require(back.ok() && sameTable(*back, *table), "a table reads back", written);
}

void checkLists(std::string_view text) {
  static const ColumnNames kColumns = {"a", "b c"};
  for (SourceLine& line : parseExpressions(text, kOrigin, Language::kInfix, kColumns)) {
    require(line.line >= 1, "a line has a number", text);
    if (line.ok()) {
      require(line.parameters().size() <= line.expression->parameterCount(), "no more values than parameters", text);
      requireInputs(line, 2, kColumns);
    } else {
      require(line.expression.error().message.starts_with("fuzz:"), "an error names its place", text);
    }
    jsonObject(1, line);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::textOf({data, size});
  checkTable(text);
  const auto header = parseCsvHeader(text, kOrigin);
  if (!header) checkError(header.error(), text);
  checkLists(text);
  const auto number = parseNumber(text);
  if (number && std::isfinite(*number)) {
    std::string printed;
    appendNumber(printed, *number, Precision::kF64);
    const auto back = parseNumber(printed);
    require(back.ok() && sameBits(*back, *number), "a number reads back", text);
  }
  return 0;
}
