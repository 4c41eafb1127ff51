// Parses any bytes in every form. Invariants: they parse or give an error with a position, and a parsed expression can
// be printed in every form and read back. JSON that is accepted is JSON for another parser, too, and a walk over that
// parser's tree gives the same tokens.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "ir/ops.h"
#include "ir/text.h"
#include "tests/fuzz/harness/bytes.h"

namespace {

using namespace srjit;
using fuzz::require;
using Json = nlohmann::json;

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

std::optional<double> namedNumber(std::string_view name) {
  if (name == "inf") return std::numeric_limits<double>::infinity();
  if (name == "-inf") return -std::numeric_limits<double>::infinity();
  if (name == "nan") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

/// Equal but for the sign of zeros: the other parser reads -0 as an integer.
bool sameBut(const Expression& a, const Expression& b) {
  return std::ranges::equal(a.tokens(), b.tokens(), [](const Token& x, const Token& y) {
    const bool zeros = x.kind == Token::Kind::kConstant && y.kind == x.kind && x.value == 0 && y.value == 0;
    return zeros || x == y;
  });
}

/// Appends the tokens of `json`, after those of its operands. False if it is no expression.
bool append(const Json& json, const ColumnNames& columns, std::vector<Token>& tokens) {
  if (json.is_number()) return tokens.push_back(Token::constant(json.get<double>())), true;
  if (json.is_string()) {
    const auto number = namedNumber(json.get_ref<const std::string&>());
    if (number) tokens.push_back(Token::constant(*number));
    return number.has_value();
  }
  if (!json.is_object()) return false;
  if (const auto var = json.find("var"); var != json.end()) {
    const auto column =
        var->is_string() ? columns.find(var->get_ref<const std::string&>()) : std::optional(var->get<std::uint32_t>());
    if (column) tokens.push_back(Token::variable(*column));
    return column.has_value();
  }
  if (const auto param = json.find("param"); param != json.end()) {
    return tokens.push_back(Token::parameter(param->get<std::uint32_t>())), true;
  }
  const auto op = json.contains("op") ? findOp(json["op"].get_ref<const std::string&>()) : std::nullopt;
  if (!op || !json.contains("args")) return false;
  for (const Json& operand : json["args"]) {
    if (!append(operand, columns, tokens)) return false;
  }
  return tokens.push_back(Token::operation(*op)), true;
}

/// The recursion of append() ends in time.
bool isShallow(std::string_view text) {
  constexpr int kMostDepth = 1000;
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' || c == '{' ? 1 : 0;
    if (depth > kMostDepth) return false;
  }
  return true;
}

void checkJson(std::string_view text) {
  static const ColumnNames kColumns = {"a", "b c", "x", "\xc3\xb6"};
  const auto expression = parse(text, Language::kJson, kColumns);
  if (!expression) return checkError(expression.error(), text);
  if (!isShallow(text)) return;
  const Json json = Json::parse(text, nullptr, false);
  require(!json.is_discarded(), "what is accepted is JSON", text);
  std::vector<Token> tokens;
  require(append(json, kColumns, tokens), "what is accepted is an expression", text);
  const auto expected = Expression::create(std::move(tokens));
  require(expected.ok() && sameBut(*expected, *expression), "both parsers give the same expression", text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ColumnNames kColumns({"a", "x0", "p1", "sin", "two words", "inf", "a", "größe", "x[1]", "", "`\\\n\xff"},
                                    {{"y", "target"}, {"x9", "weights"}});
  static const ColumnNames kPlainColumns = {"a", "b c", "x", "p"};
  static const ColumnNames kNoColumns;
  const std::string_view text = fuzz::textOf({data, size});
  checkJson(text);
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
