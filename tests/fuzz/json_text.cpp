// Parses any bytes as an expression in JSON. Invariant: what is accepted is JSON for another parser, too, and a walk
// over that parser's tree gives the same tokens.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
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

/// Appends the tokens of `json`, after those of its operands. False for what is no expression.
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ColumnNames kColumns = {"a", "b c", "x", "\xc3\xb6"};
  const std::string_view text = fuzz::textOf({data, size});
  const auto expression = parse(text, Language::kJson, kColumns);
  if (!expression) {
    require(!expression.error().message.empty() && expression.error().where.has_value(), "an error has a place", text);
    return 0;
  }
  if (!isShallow(text)) return 0;
  const Json json = Json::parse(text, nullptr, false);
  require(!json.is_discarded(), "what is accepted is JSON", text);
  std::vector<Token> tokens;
  require(append(json, kColumns, tokens), "what is accepted is an expression", text);
  const auto expected = Expression::create(std::move(tokens));
  require(expected.ok() && sameBut(*expected, *expression), "both parsers give the same expression", text);
  return 0;
}
