#include "tools/files/expressions.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "tools/files/data.h"
#include "tools/files/read.h"
#include "tools/report.h"
#include "tools/values.h"

namespace srjit {
namespace {

/// The place of `word` in `text`, not as a part of a longer word.
std::optional<Span> findWord(std::string_view text, std::string_view word) {
  const auto inWord = [&](std::size_t i) {
    return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) != 0 || text[i] == '_');
  };
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const bool starts = at == 0 || !inWord(at - 1);
    if (starts && !inWord(at + word.size())) return Span{1, at + 1, word.size()};
  }
  return std::nullopt;
}

/// The place of x3 or x[3] in `text`; all of the text if neither is there, as in JSON.
Span findIndex(std::string_view text, std::string_view word) {
  if (const auto found = findWord(text, fmt::format("{}[{}]", word[0], word.substr(1)))) return *found;
  return findWord(text, word).value_or(Span{1, 1, text.size()});
}

SourceLine parseLine(std::string_view line, std::string origin, std::size_t number, Language language,
                     const ColumnNames& columns, std::size_t max_nodes) {
  const std::size_t tab = std::min(line.find('\t'), line.size());
  const std::string_view text = line.substr(0, tab);
  SourceLine source{std::string(text), std::move(origin), number, parse(text, language, columns, max_nodes)};
  if (source.ok() && tab < line.size()) {
    Result<std::vector<double>> numbers = parseNumbers(line.substr(tab + 1), source.expression->parameterCount());
    if (!numbers) {
      numbers.error().where->column += tab + 1;
      source.expression = std::move(numbers).error();
    } else if (!numbers->empty()) {
      source.values = std::make_shared<const std::vector<double>>(std::move(*numbers));
    }
  }
  if (!source.ok()) source.expression = showPlace(source.expression.error(), line, source.origin, number);
  return source;
}

}  // namespace

std::vector<SourceLine> parseExpressions(std::string_view content, std::string_view origin, Language language,
                                         const ColumnNames& columns, std::size_t max_nodes) {
  content = withoutByteOrderMark(content);
  std::vector<SourceLine> list;
  std::size_t number = 0;
  while (!content.empty()) {
    const std::size_t end = std::min(content.find('\n'), content.size());
    std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos || line[first] == '#') continue;
    list.push_back(parseLine(line, std::string(origin), number, language, columns, max_nodes));
  }
  return list;
}

Result<std::vector<SourceLine>> readExpressions(const std::string& path, Language language, const ColumnNames& columns,
                                                const InputLimits& limits) {
  const Result<std::string> content = readFile(path, limits.max_bytes);
  if (!content) return content.error();
  return parseExpressions(*content, displayName(path), language, columns, limits.max_nodes);
}

std::vector<SourceLine> parseArguments(std::span<const std::string> arguments, Language language,
                                       const ColumnNames& columns, std::size_t max_nodes) {
  std::vector<SourceLine> list;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    list.push_back(parseLine(arguments[i], fmt::format("expression {}", i + 1), 1, language, columns, max_nodes));
  }
  return list;
}

void SourceLine::fail(Error error) {
  error.message = fmt::format("{}:{}: {}", origin, line, error.message);
  expression = std::move(error);
}

std::span<const double> SourceLine::parameters() const noexcept {
  if (!ok() || !values) return {};
  return std::span(*values).first(std::min<std::size_t>(values->size(), expression->parameterCount()));
}

Result<std::vector<double>> parseNumbers(std::string_view text, std::optional<std::uint32_t> most) {
  std::vector<double> numbers;
  std::optional<Span> surplus;
  for (std::size_t at = 0; (at = text.find_first_not_of(' ', at)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const Result<double> value = parseNumber(text.substr(at, end - at));
    if (!value) {
      const bool has_comma = text.substr(at, end - at).find(',') != std::string_view::npos;
      return Error{Errc::kInvalid,
                   fmt::format("parameter {}{}", value.error().message, has_comma ? "; separate them by spaces" : ""),
                   Span{1, at + 1, end - at}};
    }
    if (most && numbers.size() == *most) surplus = Span{1, at + 1, end - at};
    numbers.push_back(*value);
    at = end;
  }
  if (!surplus) return numbers;
  return Error{Errc::kInvalid,
               fmt::format("{} given, but the expression has {}",
                           numbers.size() == 1 ? "1 parameter is" : fmt::format("{} parameters are", numbers.size()),
                           *most == 0   ? "none"
                           : *most == 1 ? "p0 only"
                                        : fmt::format("p0 to p{} only", *most - 1)),
               surplus};
}

bool requireInputs(SourceLine& source, std::size_t variables, const ColumnNames& columns) {
  if (!source.ok()) return false;
  const std::size_t values = source.values ? source.values->size() : 0;
  if (source.expression->variableCount() <= variables && source.expression->parameterCount() <= values) return true;
  for (const Token& token : source.expression->tokens()) {
    std::string word, message;
    if (token.kind == Token::Kind::kVariable && token.index >= variables) {
      word = fmt::format("x{}", token.index);
      message = fmt::format("variable {}, but the data has {} variable{}{}", word, variables, variables == 1 ? "" : "s",
                            columns.empty() ? "" : ": " + text::listNames(columns.names()));
    } else if (token.kind == Token::Kind::kParameter && token.index >= values) {
      word = fmt::format("p{}", token.index);
      message = fmt::format("parameter {}, but {} given", word,
                            values == 0   ? "no parameters are"
                            : values == 1 ? "one is"
                                          : fmt::format("{} are", values));
    } else {
      continue;
    }
    Error error{Errc::kInvalid, std::move(message), findIndex(source.text, word)};
    source.expression = showPlace(std::move(error), source.text, source.origin, source.line);
    return false;
  }
  return true;
}

std::string jsonObject(std::size_t index, const SourceLine& line, std::string_view members) {
  return jsonObject(index, line, line.ok() ? "ok" : nameOf(line.expression.error().code), members);
}

std::string jsonObject(std::size_t index, const SourceLine& line, std::string_view status, std::string_view members) {
  std::string text = fmt::format(R"({{"index":{},"status":"{}")", index, status);
  if (!line.ok()) text += ",\"message\":" + jsonString(line.expression.error().message);
  if (!members.empty()) text += ',';
  return text.append(members) + '}';
}

std::string jsonString(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace srjit
