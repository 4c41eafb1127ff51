// Lists of expressions: positional arguments and `--exprs FILE`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/expression.h"
#include "ir/text.h"

namespace srjit {

/// Bounds of what is read from elsewhere; 0: none.
struct InputLimits {
  std::size_t max_nodes = 0;    ///< of an expression (Limits)
  std::uint64_t max_bytes = 0;  ///< of a file (readFile())
};

/// One expression as it was given, good or bad.
struct SourceLine {
  std::string text;               ///< the expression alone
  std::string origin;             ///< the file, or "expression 3"
  std::size_t line = 1;           ///< in the origin, from 1
  Result<Expression> expression;  ///< or a complete message: "ORIGIN:LINE:COLUMN: MESSAGE", the line and a caret
  /// Values of p0, p1, ...: what follows the TAB, or values that many lines share. Null for none.
  std::shared_ptr<const std::vector<double>> values = {};

  bool ok() const noexcept { return expression.ok(); }
  /// Makes it an error of the line: "ORIGIN:LINE: MESSAGE".
  void fail(Error error);
  /// Those of the values that the expression has parameters for; none where it is bad.
  std::span<const double> parameters() const noexcept;
};

/// Reads `path`, one expression a line: TEXT, or TEXT TAB NUMBERS separated by spaces, of which there may be no more
/// than the expression has parameters. Blank lines and lines whose first character is '#' are skipped. "-" is standard
/// input; .gz and .xz are decompressed. A bad line is in the list with its error; the call fails (kIo) only where the
/// file cannot be read, or has too many bytes (kLimit).
Result<std::vector<SourceLine>> readExpressions(const std::string& path, Language language,
                                                const ColumnNames& columns = {}, const InputLimits& limits = {});

/// The same for content that is in memory.
std::vector<SourceLine> parseExpressions(std::string_view content, std::string_view origin, Language language,
                                         const ColumnNames& columns = {}, std::size_t max_nodes = 0);

/// One expression per argument, in the form of one line each, with "expression N" for origin.
std::vector<SourceLine> parseArguments(std::span<const std::string> arguments, Language language,
                                       const ColumnNames& columns = {}, std::size_t max_nodes = 0);

/// The numbers in `text`, separated by spaces, and no more than `most`; kInvalid with a Span otherwise.
Result<std::vector<double>> parseNumbers(std::string_view text, std::optional<std::uint32_t> most = {});

/// Turns `source` into an error (kInvalid, complete) if its expression needs a variable that `variables` columns do not
/// give, or a parameter that it has no value for. The message lists the `columns`, which may have no names. True if
/// `source` is good.
bool requireInputs(SourceLine& source, std::size_t variables, const ColumnNames& columns = {});

/// What commands print for a line with --json: an object with its index, status, for a bad line message, and `members`
/// (JSON text such as "\"loss\":1"; may be empty). What is not UTF-8 becomes U+FFFD.
std::string jsonObject(std::size_t index, const SourceLine& line, std::string_view members = {});
/// The same with a status of its own.
std::string jsonObject(std::size_t index, const SourceLine& line, std::string_view status, std::string_view members);

/// `text` as a JSON string, likewise.
std::string jsonString(std::string_view text);

}  // namespace srjit
