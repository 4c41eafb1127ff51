// Reads any bytes as a matrix in .npy. Invariants: a table is rectangular and no larger than its file, and another
// writer's file of it reads back.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "tests/fuzz/harness/bytes.h"
#include "tools/files/data.h"

namespace {

using namespace srjit;
using fuzz::require;

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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::textOf({data, size});
  const auto table = parseNpy(bytes, "fuzz");
  if (!table) {
    require(table.error().code == Errc::kIo, "an error is one of a file");
    require(table.error().message.starts_with("fuzz"), "an error names the file", table.error().message);
    return 0;
  }
  require(table->rows() > 0 && table->names.size() == table->columns.size(), "a table has rows and names");
  for (const auto& column : table->columns) require(column.size() == table->rows(), "columns are as long");
  require(table->rows() * table->columns.size() <= size, "numbers are in the file, a byte each at least");
  const auto back = parseNpy(npyOf(*table), "again");
  require(back.ok() && back->columns.size() == table->columns.size() && back->rows() == table->rows(),
          "a table reads back");
  for (std::size_t c = 0; c < table->columns.size(); ++c) {
    for (std::size_t r = 0; r < table->rows(); ++r) {
      require(sameBits(back->columns[c][r], table->columns[c][r]), "with the same bits");
    }
  }
  return 0;
}
