// Reads any bytes as a table in CSV, as a header, as a list of expressions, as a number, and as a matrix in .npy.
// Invariants: a table is rectangular and reads back from what another writer makes of it; a matrix is no larger than
// its file; errors have a place.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "tests/fuzz/harness/bytes.h"
#include "tools/files/data.h"
#include "tools/files/expressions.h"
#include "tools/values.h"

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

void checkRectangle(const DataTable& table, std::string_view text) {
  require(table.rows() > 0 && table.names.size() == table.columns.size(), "a table has rows and names", text);
  for (const auto& column : table.columns) require(column.size() == table.rows(), "columns are as long", text);
}

void checkTable(std::string_view text) {
  const auto table = parseCsv(text, kOrigin);
  if (!table) return checkError(table.error(), text);
  checkRectangle(*table, text);
  const std::string written = csvOf(*table);
  const auto back = parseCsv(written, kOrigin);
  require(back.ok() && sameTable(*back, *table), "a table reads back", written);
}

/// In format 2.0, in C order.
std::string npyOf(const DataTable& table) {
  const std::string header = "{'shape': (" + std::to_string(table.rows()) + ", " +
                             std::to_string(table.columns.size()) + "), 'fortran_order': False, 'descr': '<f8'}\n";
  std::string bytes = std::string("\x93NUMPY\x02\x00", 8);
  for (std::size_t i = 0; i < 4; ++i) bytes += static_cast<char>(header.size() >> 8 * i & 0xff);
  bytes += header;
  for (std::size_t r = 0; r < table.rows(); ++r) {
    for (const auto& column : table.columns) {
      char number[sizeof(double)];
      std::memcpy(number, &column[r], sizeof number);
      bytes.append(number, sizeof number);
    }
  }
  return bytes;
}

void checkMatrix(std::string_view bytes) {
  const auto table = parseNpy(bytes, kOrigin);
  if (!table) {
    require(table.error().code == Errc::kIo, "an error is one of a file");
    require(table.error().message.starts_with(kOrigin), "an error names the file", table.error().message);
    return;
  }
  checkRectangle(*table, {});
  require(table->rows() * table->columns.size() <= bytes.size(), "numbers are in the file, a byte each at least");
  const auto back = parseNpy(npyOf(*table), "again");
  require(back.ok() && sameTable(*back, *table), "a matrix reads back");
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
  checkMatrix(text);
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
