#include <csv.h>

#include <algorithm>
#include <limits>
#include <new>
#include <optional>
#include <unordered_set>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "tools/files/data.h"
#include "tools/files/read.h"
#include "tools/report.h"
#include "tools/values.h"

namespace srjit {
namespace {

/// A libcsv parser, strict about quotes, that tells blank lines too.
class Parser {
 public:
  explicit Parser(char delimiter) {
    if (csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI | CSV_REPALL_NL) != 0) throw std::bad_alloc();
    csv_set_delim(&parser_, static_cast<unsigned char>(delimiter));
    // A cell's memory grows by this; by 128 bytes, libcsv's default, copies take time quadratic in the cell's length.
    csv_set_blk_size(&parser_, 1 << 16);
  }
  ~Parser() { csv_free(&parser_); }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  csv_parser* get() { return &parser_; }

 private:
  csv_parser parser_;
};

/// Counts what libcsv tells. Records count from 0, which is the header; a line without cells is none.
struct Position {
  std::size_t record = 0, field = 0;
  std::size_t blank_lines = 0;
  int last_end = 0;  ///< the character that ended the last line, 0 since a cell was seen

  /// At the end of a line: whether it was a record; `end` is the character there.
  bool endsRecord(int end) {
    if (field == 0) {
      const bool second_of_two = last_end == '\r' && end == '\n';
      if (!second_of_two) ++blank_lines;
      last_end = second_of_two ? 0 : end;
      return false;
    }
    last_end = end;
    return true;
  }
  void nextRecord() {
    field = 0;
    ++record;
  }
};

/// The fault, and its cell, or its blank line, counted from 1.
struct Fault {
  std::size_t record, field, blank_line;
  std::string message;
};

/// Whether a cell says that its value is missing, as R, pandas and databases write it.
bool isMissing(std::string_view cell) {
  constexpr std::string_view kWords[] = {"", "na", "n/a", "null"};
  const auto is_equal = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  return std::ranges::any_of(kWords, [&](std::string_view word) { return std::ranges::equal(cell, word, is_equal); });
}

/// Receives the cells and keeps the first fault. libcsv's callbacks cannot stop it, so later cells are let pass.
struct Builder {
  static constexpr std::size_t kIgnored = std::numeric_limits<std::size_t>::max();

  const CsvForm& form;
  std::string_view origin;
  DataTable table = {};
  std::vector<std::string> names = {};   ///< of all columns of the file
  std::vector<std::size_t> places = {};  ///< by column of the file: that of the table, or kIgnored
  Position at = {};
  std::size_t first_blank_line = 0;  ///< since the last row, 0 without
  std::optional<Fault> fault = {};
  Status chosen = okStatus();  ///< of the columns

  void fail(std::string message) {
    if (!fault) fault = Fault{at.record, at.field, 0, std::move(message)};
  }

  void cell(std::string_view text) {
    if (fault) return;
    if (first_blank_line != 0) return failEmpty(first_blank_line);
    const std::size_t field = at.field;
    if (at.record == 0) {
      if (text.empty()) fail("a column without a name");
      names.emplace_back(text);
    } else if (field == names.size()) {
      fail(fmt::format("a cell too many: the header names {} column{}", field, field == 1 ? "" : "s"));
    } else if (places[field] == kIgnored) {
      // Text as it is.
    } else if (isMissing(text)) {
      missingCell(text);
    } else {
      number(text);
    }
    ++at.field;
  }

  void number(std::string_view text) {
    std::string changed;
    if (form.decimal != '.') {
      changed = text;
      std::ranges::replace(changed, form.decimal, '.');
      // A point is none where the decimal is another character.
      if (text.find('.') != std::string_view::npos) changed = "?";
    }
    const Result<double> value = parseNumber(form.decimal == '.' ? text : changed);
    if (value) {
      table.columns[places[at.field]].push_back(*value);
    } else if (form.decimal == '.') {
      fail(fmt::format("{} (column {})", value.error().message, text::inQuotes(names[at.field])));
    } else {
      fail(fmt::format("{} is not a number with decimal {} (column {})", text::inQuotes(text),
                       text::inQuotes({&form.decimal, 1}), text::inQuotes(names[at.field])));
    }
  }

  void missingCell(std::string_view text) {
    if (form.missing == MissingCells::kRead) {
      table.columns[places[at.field]].push_back(std::numeric_limits<double>::quiet_NaN());
    } else if (text.empty()) {
      failEmpty(0);
    } else {
      fail(fmt::format("{} is not a number (column {}){}", text::inQuotes(text), text::inQuotes(names[at.field]),
                       remedy()));
    }
  }
  std::string_view remedy() const {
    return form.missing == MissingCells::kDroppable ? "; --drop-missing leaves out rows with missing values" : "";
  }

  void failEmpty(std::size_t blank_line) {
    fail(fmt::format("empty cell in column {}{}", text::inQuotes(names[at.field]), remedy()));
    fault->blank_line = blank_line;
  }

  void endOfLine(int end) {
    if (fault) return;
    const std::size_t blank_lines = at.blank_lines, field = at.field;
    if (!at.endsRecord(end)) {
      // Between rows of one column it is a row whose cell is missing; at the end of the file it is nothing.
      const bool is_row = at.blank_lines != blank_lines && at.record > 0 && names.size() == 1;
      if (is_row && first_blank_line == 0) first_blank_line = at.blank_lines;
      return;
    }
    if (at.record == 0) {
      checkHeader();
      choose();
    } else if (field < names.size()) {
      fail(fmt::format("the line ends after {} cell{}, but the header names {} columns", field, field == 1 ? "" : "s",
                       names.size()));
    }
    at.nextRecord();
  }

  void choose() {
    for (const std::string& name : names) {
      const bool is_ignored = std::ranges::find(form.ignored, name) != form.ignored.end();
      places.push_back(is_ignored ? kIgnored : table.names.size());
      if (!is_ignored) table.names.push_back(name);
    }
    table.columns.resize(table.names.size());
    chosen = checkIgnored(names, form, origin);
    if (!chosen) fail(chosen.error().message);
  }

  void checkHeader() {
    std::unordered_set<std::string_view> seen;
    bool all_numbers = true, counted = true;
    for (std::size_t& field = at.field = 0; field < names.size(); ++field) {
      const std::string& name = names[field];
      if (!seen.insert(name).second) return fail(fmt::format("a second column called {}", text::inQuotes(name)));
      all_numbers = all_numbers && parseNumber(name).ok();
      counted = counted && name == std::to_string(field);
    }
    at.field = 0;
    // Tables without names are often saved with a header 0,1,2,...; other numbers mean that the header is missing.
    if (all_numbers && !counted) {
      fail(fmt::format("the first line must name the columns, but {} is a number", text::inQuotes(names[0])));
    }
  }

  static void onCell(void* bytes, std::size_t size, void* self) {
    static_cast<Builder*>(self)->cell({static_cast<const char*>(bytes), size});
  }
  static void onEnd(int end, void* self) { static_cast<Builder*>(self)->endOfLine(end); }
};

/// Finds the bytes of a cell or of a blank line's end by parsing once more, byte by byte: libcsv tells no positions,
/// and errors are rare.
struct Locator {
  const Fault& wanted;
  Position at = {};
  std::size_t offset = 0, start = 0;
  std::optional<std::pair<std::size_t, std::size_t>> found = {};

  static void onCell(void*, std::size_t, void* data) {
    auto& self = *static_cast<Locator*>(data);
    const bool here = self.wanted.blank_line == 0 && self.at.record == self.wanted.record;
    if (here && self.at.field == self.wanted.field) self.found = {self.start, self.offset};
    ++self.at.field;
    self.start = self.offset + 1;
  }
  static void onEnd(int end, void* data) {
    auto& self = *static_cast<Locator*>(data);
    const bool record = self.at.endsRecord(end);
    const bool here = self.wanted.blank_line == 0 ? record && self.at.record == self.wanted.record
                                                  : self.at.blank_lines == self.wanted.blank_line;
    if (here && !self.found) self.found = {self.offset, self.offset};
    if (record) self.at.nextRecord();
    self.start = self.offset + 1;
  }
};

std::pair<std::size_t, std::size_t> locate(std::string_view text, const Fault& fault, char delimiter) {
  Parser parser(delimiter);
  Locator locator{fault};
  for (; locator.offset < text.size() && !locator.found; ++locator.offset) {
    csv_parse(parser.get(), &text[locator.offset], 1, Locator::onCell, Locator::onEnd, &locator);
  }
  if (!locator.found) csv_fini(parser.get(), Locator::onCell, Locator::onEnd, &locator);
  auto [begin, end] = locator.found.value_or(std::pair{text.size(), text.size()});
  constexpr std::string_view kSpaces = " \t\r\n";
  while (begin < end && kSpaces.find(text[begin]) != std::string_view::npos) ++begin;
  while (begin < end && kSpaces.find(text[end - 1]) != std::string_view::npos) --end;
  return {begin, end};
}

/// The error for bytes begin..end of `text`, with the line they are on.
Error errorAt(std::string_view text, std::string_view origin, std::size_t begin, std::size_t end, std::string message) {
  std::size_t line = 1, line_start = 0;
  for (std::size_t i = 0; i < begin; ++i) {
    const bool ends = text[i] == '\n' || (text[i] == '\r' && (i + 1 == text.size() || text[i + 1] != '\n'));
    if (!ends) continue;
    ++line;
    line_start = i + 1;
  }
  const std::size_t line_end = std::min(text.find_first_of("\r\n", line_start), text.size());
  const std::size_t length = std::min(end, std::max(line_end, begin)) - begin;
  Error error{Errc::kIo, std::move(message), Span{1, begin - line_start + 1, length}};
  return showPlace(std::move(error), text.substr(line_start, line_end - line_start), origin, line);
}

/// The header of `text` and all rows; where there is a fault, an error.
Result<DataTable> parseTable(std::string_view text, std::string_view origin, const CsvForm& form) {
  text = withoutByteOrderMark(text);
  Parser parser(form.delimiter);
  Builder builder{.form = form, .origin = origin};
  constexpr std::size_t kBlock = 1 << 16;  // small, so that a fault is reported early
  bool broken = false;
  std::size_t done = 0;
  while (done < text.size() && !broken && !builder.fault) {
    const std::size_t size = std::min(kBlock, text.size() - done);
    const std::size_t taken =
        csv_parse(parser.get(), text.data() + done, size, Builder::onCell, Builder::onEnd, &builder);
    done += taken;
    broken = taken != size;
  }
  if (!broken && !builder.fault && csv_fini(parser.get(), Builder::onCell, Builder::onEnd, &builder) != 0)
    broken = true;
  if (!builder.chosen) return builder.chosen.error();
  if (builder.fault) {
    const auto [begin, end] = locate(text, *builder.fault, form.delimiter);
    return errorAt(text, origin, begin, end, builder.fault->message);
  }
  if (broken && csv_error(parser.get()) == CSV_ENOMEM) {
    return Error{Errc::kMachine, fmt::format("{}: not enough memory to hold it", origin), {}};
  }
  if (broken) {
    const bool open = done >= text.size();
    return errorAt(text, origin, done, done + (open ? 0 : 1),
                   open ? "a quoted cell is not closed at the end of the file"
                        : "a quote inside a cell must be doubled, and the cell be quoted");
  }
  builder.table.named = true;
  return std::move(builder.table);
}

}  // namespace

Result<DataTable> parseCsv(std::string_view text, std::string_view origin, const CsvForm& form) {
  Result<DataTable> table = parseTable(text, origin, form);
  if (!table) return table;
  if (table->names.empty()) return Error{Errc::kIo, fmt::format("{}:1:1: the file is empty", origin), Span{}};
  if (table->rows() == 0) {
    text = withoutByteOrderMark(text);
    return errorAt(text, origin, text.size(), text.size(), "the file has a header, but no rows");
  }
  return table;
}

Result<std::vector<std::string>> parseCsvHeader(std::string_view text, std::string_view origin) {
  Result<DataTable> table = parseTable(text, origin, {});
  if (!table) return table.error();
  if (table->rows() == 0) return std::move(table->names);
  const std::size_t second = text.find_first_of("\r\n");
  return errorAt(text, origin, second, second, "the names of columns are one line");
}

}  // namespace srjit
