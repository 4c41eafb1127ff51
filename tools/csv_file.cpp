#include <csv.h>

#include <algorithm>
#include <new>
#include <optional>
#include <unordered_set>

#include <fmt/format.h>

#include "ir/lexer.h"
#include "tools/data_file.h"
#include "tools/read_file.h"
#include "tools/report.h"

namespace srjit {
namespace {

/// A libcsv parser, strict about quotes.
class Parser {
 public:
  Parser() {
    if (csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI) != 0) throw std::bad_alloc();
  }
  ~Parser() { csv_free(&parser_); }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  csv_parser* get() { return &parser_; }

 private:
  csv_parser parser_;
};

/// What is wrong with a cell. Records count from 0, which is the header; a record has fields only while they are seen.
struct Fault {
  std::size_t record, field;
  std::string message;
};

/// Receives the cells and keeps the first fault. libcsv's callbacks cannot stop it, so later cells are let pass.
struct Builder {
  DataTable table;
  std::size_t record = 0, field = 0;
  std::optional<Fault> fault;

  void fail(std::string message) {
    if (!fault) fault = Fault{record, field, std::move(message)};
  }

  void cell(std::string_view text) {
    if (fault) return;
    if (record == 0) {
      if (text.empty()) fail("a column without a name");
      table.names.emplace_back(text);
    } else if (field == table.names.size()) {
      fail(fmt::format("a cell too many: the header names {} column{}", field, field == 1 ? "" : "s"));
    } else if (text.empty()) {
      fail(fmt::format("empty cell in column {}", text::inQuotes(table.names[field])));
    } else {
      const Result<double> value = parseNumber(text);
      if (value) table.columns[field].push_back(*value);
      if (!value) fail(fmt::format("{} (column {})", value.error().message, text::inQuotes(table.names[field])));
    }
    ++field;
  }

  void endOfRecord() {
    if (fault) return;
    if (record == 0) {
      checkHeader();
      table.columns.resize(table.names.size());
    } else if (field < table.names.size()) {
      fail(fmt::format("the line ends after {} cell{}, but the header names {} columns", field, field == 1 ? "" : "s",
                       table.names.size()));
    }
    field = 0;
    ++record;
  }

  void checkHeader() {
    std::unordered_set<std::string_view> seen;
    bool all_numbers = true, counted = true;
    for (field = 0; field < table.names.size(); ++field) {
      const std::string& name = table.names[field];
      if (!seen.insert(name).second) return fail(fmt::format("a second column called {}", text::inQuotes(name)));
      all_numbers = all_numbers && parseNumber(name).ok();
      counted = counted && name == std::to_string(field);
    }
    field = 0;
    // Tables without names are often saved with a header 0,1,2,...; other numbers mean that the header is missing.
    if (all_numbers && !counted) {
      fail(fmt::format("the first line must name the columns, but {} is a number", text::inQuotes(table.names[0])));
    }
  }

  static void onCell(void* bytes, std::size_t size, void* self) {
    static_cast<Builder*>(self)->cell({static_cast<const char*>(bytes), size});
  }
  static void onEnd(int, void* self) { static_cast<Builder*>(self)->endOfRecord(); }
};

/// Finds the bytes of a cell by parsing once more, byte by byte: libcsv tells no positions, and errors are rare.
struct Locator {
  std::size_t wanted_record, wanted_field;
  std::size_t record = 0, field = 0, offset = 0, start = 0;
  std::optional<std::pair<std::size_t, std::size_t>> found = {};

  static void onCell(void*, std::size_t, void* data) {
    auto& self = *static_cast<Locator*>(data);
    if (self.record == self.wanted_record && self.field == self.wanted_field) self.found = {self.start, self.offset};
    ++self.field;
    self.start = self.offset + 1;
  }
  static void onEnd(int, void* data) {
    auto& self = *static_cast<Locator*>(data);
    if (self.record == self.wanted_record && !self.found) self.found = {self.offset, self.offset};
    ++self.record;
    self.field = 0;
    self.start = self.offset + 1;
  }
};

std::pair<std::size_t, std::size_t> locate(std::string_view text, std::size_t record, std::size_t field) {
  Parser parser;
  Locator locator{record, field};
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

}  // namespace

Result<DataTable> parseCsv(std::string_view text, std::string_view origin) {
  text = withoutByteOrderMark(text);
  Parser parser;
  Builder builder;
  constexpr std::size_t kBlock = 1 << 16;  // small, so that a fault is told soon
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
  if (builder.fault) {
    const auto [begin, end] = locate(text, builder.fault->record, builder.fault->field);
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
  if (builder.record == 0) return Error{Errc::kIo, fmt::format("{}:1:1: the file is empty", origin), Span{}};
  if (builder.record == 1) {
    return errorAt(text, origin, text.size(), text.size(), "the file has a header, but no rows");
  }
  builder.table.named = true;
  return std::move(builder.table);
}

}  // namespace srjit
