#include "tools/files/data.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "tools/files/read.h"
#include "tools/report.h"

namespace srjit {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";

template <class T>
constexpr Precision kPrecision = kPrecisionOf<T>;

template <class T>
void writeCsv(OutputFile& out, std::span<const std::span<const T>> columns) {
  std::string line;
  for (std::size_t e = 0; e < columns.size(); ++e) line += fmt::format("{}e{}", e == 0 ? "" : ",", e);
  line += '\n';
  out.write(line);
  const std::size_t rows = columns.empty() ? 0 : columns.front().size();
  for (std::size_t row = 0; row < rows; ++row) {
    line.clear();
    for (std::size_t e = 0; e < columns.size(); ++e) {
      if (e != 0) line += ',';
      appendNumber(line, columns[e][row], kPrecision<T>);
    }
    line += '\n';
    out.write(line);
  }
}

template <class T>
void writeNpy(OutputFile& out, std::span<const std::span<const T>> columns) {
  const std::size_t rows = columns.empty() ? 0 : columns.front().size();
  std::string header =
      fmt::format("{{'descr': '<f{}', 'fortran_order': True, 'shape': ({}, {}), }}", sizeof(T), rows, columns.size());
  constexpr std::size_t kBefore = 10;  // magic, version and the two bytes of the header's length
  header.append(63 - (kBefore + header.size()) % 64, ' ');
  header += '\n';
  std::string start(kNpyMagic);
  start += {'\1', '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  out.write(start);
  out.write(header);
  for (const std::span<const T> column : columns) {
    out.write({reinterpret_cast<const char*>(column.data()), column.size_bytes()});
  }
}

}  // namespace

Result<DataTable> readData(const std::string& path, std::uint64_t max_bytes, const CsvForm& form) {
  const Result<std::string> content = readFile(path, max_bytes);
  if (!content) return content.error();
  const std::string origin = displayName(path);
  const bool is_npy = std::string_view(*content).starts_with(kNpyMagic);
  const bool claims_npy = path.ends_with(".npy") || path.ends_with(".npy.gz") || path.ends_with(".npy.xz");
  if (!is_npy && !claims_npy) return parseCsv(*content, origin, form);
  Result<DataTable> table = parseNpy(*content, origin);
  if (!table) return table;
  if (Status known = checkIgnored(table->names, form, origin); !known) return std::move(known).error();
  for (const std::string& name : form.ignored) {
    const auto at = std::ranges::find(table->names, name);
    if (at == table->names.end()) continue;  // named twice
    table->columns.erase(table->columns.begin() + (at - table->names.begin()));
    table->names.erase(at);
  }
  return table;
}

Status checkIgnored(std::span<const std::string> names, const CsvForm& form, std::string_view origin) {
  const auto isIn = [](std::span<const std::string> all, const std::string& name) {
    return std::ranges::find(all, name) != all.end();
  };
  for (const std::string& name : form.ignored) {
    if (isIn(names, name)) continue;
    return Error{Errc::kInvalid,
                 fmt::format("{}: column {} is to be ignored, but is not in the data; its columns are {}", origin,
                             text::inQuotes(name), text::listNames(names)),
                 {}};
  }
  const bool leaves_one =
      std::ranges::any_of(names, [&](const std::string& name) { return !isIn(form.ignored, name); });
  if (leaves_one) return okStatus();
  return Error{Errc::kInvalid, fmt::format("{}: all columns are ignored", origin), {}};
}

std::size_t dropMissing(DataTable& table) {
  std::vector<std::uint8_t> drops(table.rows());
  for (const std::vector<double>& column : table.columns) {
    for (std::size_t row = 0; row < column.size(); ++row) {
      if (std::isnan(column[row])) drops[row] = 1;
    }
  }
  const auto dropped = static_cast<std::size_t>(std::ranges::count(drops, 1));
  if (dropped == 0) return 0;
  for (std::vector<double>& column : table.columns) {
    std::size_t left = 0;
    for (std::size_t row = 0; row < column.size(); ++row) {
      column[left] = column[row];
      left += 1U - drops[row];
    }
    column.resize(left);
  }
  return dropped;
}

Result<Roles> assignRoles(const DataTable& table, std::string_view target, std::string_view weights) {
  const auto find = [&](std::string_view name, std::string_view role) -> Result<std::size_t> {
    if (name.empty()) return table.names.size();
    const auto found = std::ranges::find(table.names, name);
    if (found != table.names.end()) return static_cast<std::size_t>(found - table.names.begin());
    return Error{Errc::kInvalid,
                 fmt::format("{} column {} is not in the data; its columns are {}", role, text::inQuotes(name),
                             text::listNames(table.names)),
                 {}};
  };
  const Result<std::size_t> target_index = find(target, "target");
  if (!target_index) return target_index.error();
  const Result<std::size_t> weights_index = find(weights, "weights");
  if (!weights_index) return weights_index.error();
  if (*target_index == *weights_index && !target.empty()) {
    return Error{
        Errc::kInvalid, fmt::format("column {} cannot be both target and weights", text::inQuotes(target)), {}};
  }
  Roles roles;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (i == *target_index) {
      roles.target = table.columns[i];
      if (table.named) roles.others.push_back({table.names[i], "target"});
    } else if (i == *weights_index) {
      roles.weights = table.columns[i];
      if (table.named) roles.others.push_back({table.names[i], "weights"});
    } else {
      roles.variables.emplace_back(table.columns[i]);
      if (table.named) roles.names.push_back(table.names[i]);
    }
  }
  return roles;
}

template <class T>
void writeMatrix(OutputFile& out, std::span<const std::span<const T>> columns, std::string_view path) {
  if (path.ends_with(".npy")) {
    writeNpy(out, columns);
  } else {
    writeCsv(out, columns);
  }
}
template void writeMatrix(OutputFile&, std::span<const std::span<const float>>, std::string_view);
template void writeMatrix(OutputFile&, std::span<const std::span<const double>>, std::string_view);

void appendNumber(std::string& text, double value, Precision precision) {
  if (std::isnan(value)) {  // to_chars() would show the sign, which means nothing
    text += "nan";
    return;
  }
  char digits[32];
  const auto end = withZeroOf(
      precision, [&]<class T>(T) { return std::to_chars(digits, digits + sizeof digits, static_cast<T>(value)); });
  text.append(digits, end.ptr);
}

void appendJsonNumber(std::string& text, double value, Precision precision) {
  const char* mark = std::isfinite(value) ? "" : "\"";
  text += mark;
  appendNumber(text, value, precision);
  text += mark;
}

}  // namespace srjit
