// Data tables: what `--data FILE` names, and the matrices that `run` writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/error.h"
#include "ir/numeric.h"
#include "ir/text.h"
#include "tools/files/output.h"

namespace srjit {

/// A table of numbers, column by column. At least one row and one column; all columns are equally long.
struct DataTable {
  std::vector<std::string> names;  ///< one per column: the header, or the column's index from 0 where the file has none
  std::vector<std::vector<double>> columns;
  bool named = false;     ///< the names come from a header
  bool from_f32 = false;  ///< the file holds float32

  std::size_t rows() const noexcept { return columns.empty() ? 0 : columns.front().size(); }
};

/// What a cell of a CSV file is that is empty or says NA, N/A or NULL, in any case.
enum class MissingCells : std::uint8_t {
  kRefused,    ///< an error
  kDroppable,  ///< an error whose message names --drop-missing
  kRead,       ///< NaN
};

/// How a CSV file is written, and what is read of it.
struct CsvForm {
  MissingCells missing = MissingCells::kRefused;
  char delimiter = ',', decimal = '.';    ///< between cells, and before the digits of a fraction: two characters
  std::vector<std::string> ignored = {};  ///< names of columns that are not read, whatever their cells have
};

/// Reads a CSV file with a header line (RFC 4180; LF, CRLF or CR; UTF-8 byte order mark allowed) or an .npy matrix
/// (format 1.0 to 3.0, two dimensions; float32, float64, integers or booleans, which become 0 and 1; C or Fortran
/// order). Both may be .gz or .xz; "-" is standard
/// input; the content tells which it is. A cell is a decimal number, inf, infinity or nan, in any case. A blank line
/// has no cells, so it is no row, and is skipped; but where there is one column, it is a row whose only cell is empty,
/// which is an error unless nothing but blank lines follows. `form` is that of a CSV file; its ignored columns are left
/// out of an .npy matrix, too. Errors are kIo with a complete message, for CSV with the place: "FILE:LINE:COLUMN:
/// MESSAGE", the line and a caret; kInvalid for an ignored column that is not there, or if there is no other.
Result<DataTable> readData(const std::string& path, std::uint64_t max_bytes = 0, const CsvForm& form = {});

/// The same for content that is in memory; `origin` names it in messages.
Result<DataTable> parseCsv(std::string_view text, std::string_view origin, const CsvForm& form = {});
Result<DataTable> parseNpy(std::string_view bytes, std::string_view origin);

/// Whether `names` have all columns that are ignored, and another.
Status checkIgnored(std::span<const std::string> names, const CsvForm& form, std::string_view origin);

/// Leaves out the rows in which a column has a NaN; gives their number. There may be no row left.
std::size_t dropMissing(DataTable& table);

/// The names in the header line `text` of a CSV file; no text has none. Errors as those of parseCsv().
Result<std::vector<std::string>> parseCsvHeader(std::string_view text, std::string_view origin);

/// The columns by their role.
struct Roles {
  std::vector<std::string> names;   ///< of the variables; empty if the table is not named
  std::vector<OtherColumn> others;  ///< the target and the weights; empty if the table is not named
  std::vector<std::span<const double>> variables;
  std::span<const double> target, weights;  ///< empty if not asked for
};

/// Divides the columns of `table`, which must outlive the result, into variables and the columns called `target` and
/// `weights` (empty: none). Errors (kInvalid) name the columns there are.
Result<Roles> assignRoles(const DataTable& table, std::string_view target, std::string_view weights);

/// Writes a matrix of rows x columns.size(), for a `path` that ends in .npy in that format, in Fortran order with
/// elements of type T, float or double; else CSV with the header e0,e1,... CSV numbers are the shortest that read back
/// exactly. Columns must be equally long.
template <class T>
void writeMatrix(OutputFile& out, std::span<const std::span<const T>> columns, std::string_view path);

/// Appends the shortest decimal that reads back as `value` in `precision`; "nan", "inf" and "-inf" for the others.
void appendNumber(std::string& text, double value, Precision precision);

/// The same for JSON, where those three become strings.
void appendJsonNumber(std::string& text, double value, Precision precision);

}  // namespace srjit
