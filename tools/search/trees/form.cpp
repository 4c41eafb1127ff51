#include "tools/search/trees/form.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "ir/text/words.h"
#include "tools/search/rows.h"
#include "tools/search/trees/names.h"
#include "tools/values.h"

namespace srjit::search {
namespace {

/// NAME(ARGUMENT, ...) or NAME[ARGUMENT] in a text, where no operator has the name. Bytes of the text.
struct Call {
  TextRange name;
  std::vector<TextRange> arguments;
  std::size_t end;
};

std::string_view textOf(std::string_view text, const TextRange& range) { return text.substr(range.first, range.size); }

/// The bytes of a name in backquotes, or 1.
std::size_t stepAt(std::string_view text, std::size_t at) {
  return text[at] == text::kBackquote ? text::scanQuotedName(text, at) : 1;
}

/// The calls with this bracket. One that does not end is left to the parser of expressions.
std::vector<Call> callsOf(std::string_view text, char open, char close) {
  std::vector<Call> calls;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t word = text::scanWord(text, at), bracket = text::skipSpace(text, at + word);
    const bool is_call = word > 0 && !text::isDigit(text[at]) && !findOp(text.substr(at, word)) &&
                         bracket < text.size() && text[bracket] == open;
    std::size_t end = is_call ? bracket : text.size();
    while (end < text.size() && text[end] != close) end += stepAt(text, end);
    if (end >= text.size()) {
      at += std::max(word, stepAt(text, at));
      continue;
    }
    calls.push_back({{at, word}, itemsOf(text, bracket + 1, end), end + 1});
    at = end + 1;
  }
  return calls;
}

/// Spaces for what follows the names of calls, so that other places stay.
void keepNames(std::string& text, std::span<const Call> calls) {
  for (const Call& call : calls) {
    const std::size_t begin = call.name.first + call.name.size, count = call.end - begin;
    text.replace(begin, count, count, ' ');
  }
}

Error errorAt(std::string_view text, const TextRange& range, std::string message) {
  return text::errorAt(text, range.first, std::max<std::size_t>(range.size, 1), std::move(message), Errc::kInvalid);
}

/// The column that an argument names.
Result<std::uint32_t> columnOf(std::string_view text, const TextRange& range, const DataView& data) {
  const std::optional<std::uint32_t> column = findColumn(textOf(text, range), data.names, data.columns.size());
  if (column) return *column;
  return errorAt(text, range, fmt::format("{} is no column", text::inQuotes(textOf(text, range))));
}

/// A constant for each value of a column, each as p0: nested conditions, with a number between two values in each.
Result<std::vector<Token>> constantByKind(std::string_view text, const TextRange& range, const DataView& data) {
  const Result<std::uint32_t> column = columnOf(text, range, data);
  if (!column) return column.error();
  std::vector<double> kinds;
  const ColumnView& values = data.columns[*column];
  for (std::size_t row = 0; row < values.size && kinds.size() <= kMostKinds; ++row) {
    const double value = valueAt(values, row);
    const auto place = std::ranges::lower_bound(kinds, value);
    if (place == kinds.end() || *place != value) kinds.insert(place, value);
  }
  if (kinds.size() < 2 || kinds.size() > kMostKinds) {
    return errorAt(text, range,
                   fmt::format("{} has {} values, expected 2 to {}", textOf(text, range),
                               kinds.size() < 2 ? "less than 2" : fmt::format("more than {}", kMostKinds), kMostKinds));
  }
  std::vector<Token> tokens;
  for (std::size_t k = kinds.size() - 1; k > 0; --k) {
    tokens.insert(tokens.end(), {Token::variable(*column), Token::constant(std::midpoint(kinds[k - 1], kinds[k])),
                                 Token::operation(Op::kSub), Token::parameter(0)});
  }
  tokens.push_back(Token::parameter(0));
  tokens.insert(tokens.end(), kinds.size() - 1, Token::operation(Op::kIf));
  return tokens;
}

}  // namespace

Result<Definition> parseDefinition(std::string_view text) {
  const std::vector<Call> calls = callsOf(text, '(', ')');
  const std::size_t equals = text.find('=');
  const std::size_t first = text::skipSpace(text, 0);
  if (calls.empty() || calls[0].name.first != first || text::skipSpace(text, calls[0].end) != equals) {
    const std::size_t word = text::scanWord(text, first);
    if (word > 0 && findOp(text.substr(first, word))) {
      return errorAt(text, {first, word}, fmt::format("{} is an operator already", text.substr(first, word)));
    }
    return errorAt(text, {first, word}, "a definition is NAME(WORD, ...) = EXPRESSION, such as mm(x, y) = x/(x + y)");
  }
  const Call& call = calls[0];
  std::vector<std::string> names;
  for (const TextRange& argument : call.arguments) {
    const std::string_view word = textOf(text, argument);
    if (!text::isIdentifier(word)) return errorAt(text, argument, "an argument is a word");
    if (std::ranges::find(names, word) != names.end()) {
      return errorAt(text, argument, fmt::format("the argument {} occurs twice", word));
    }
    names.emplace_back(word);
  }
  std::string body(text);
  std::fill_n(body.begin(), equals + 1, ' ');
  const Result<Expression> parsed = parse(body, Language::kInfix, names);
  if (!parsed) return parsed.error();
  if (parsed->parameterCount() > 0) return errorAt(text, call.name, "a definition has numbers, but no parameters");
  for (std::size_t k = 0; k < names.size(); ++k) {
    if (std::ranges::find(parsed->tokens(), Token::variable(static_cast<std::uint32_t>(k))) == parsed->tokens().end()) {
      return errorAt(text, call.arguments[k], fmt::format("the argument {} is not used", names[k]));
    }
  }
  return Definition{names.size(), {parsed->tokens().begin(), parsed->tokens().end()}};
}

Result<Form> Form::parse(std::string_view text, const DataView& data, const std::vector<std::string>& bounds) {
  Form form;
  form.variables_ = data.columns.size();
  std::string plain(text);
  std::vector<std::string> names(data.names.names().begin(), data.names.names().end());
  for (std::size_t c = names.size(); c < data.columns.size(); ++c) names.push_back(fmt::format("x{}", c));
  const std::vector<Call> calls = callsOf(text, '(', ')'), indexed = callsOf(text, '[', ']');
  keepNames(plain, calls);
  for (const Call& call : calls) {
    const std::string_view name = textOf(text, call.name);
    if (std::ranges::find(names, name) != names.end()) {
      return errorAt(text, call.name, fmt::format("{} is a column, or a function that occurred before", name));
    }
    std::vector<std::uint32_t>& columns = form.columns_.emplace_back();
    for (const TextRange& argument : call.arguments) {
      const Result<std::uint32_t> column = columnOf(text, argument, data);
      if (!column) return column.error();
      columns.push_back(*column);
    }
    names.emplace_back(name);
  }
  if (calls.empty()) {
    return errorAt(text, {0, text.size()},
                   "the form has no function of columns, such as f(x0, x1), that could be found");
  }
  // By parameter: the tokens in its place.
  std::vector<std::pair<std::uint32_t, std::vector<Token>>> kinds;
  for (const Call& call : indexed) {
    const Result<Expression> parameter = srjit::parse(textOf(text, call.name), Language::kInfix);
    if (!parameter || parameter->tokens()[0].kind != Token::Kind::kParameter) continue;
    Result<std::vector<Token>> constants = constantByKind(text, call.arguments[0], data);
    if (!constants) return constants.error();
    keepNames(plain, std::span(&call, 1));
    kinds.emplace_back(parameter->tokens()[0].index, *std::move(constants));
  }
  const Result<Expression> parsed = srjit::parse(plain, Language::kInfix, names);
  if (!parsed) return parsed.error();
  const std::vector<TextRange> ranges = tokenRanges(plain, names).value();
  std::set<std::uint32_t> parameters;
  for (std::size_t i = 0; i < parsed->size(); ++i) {
    if (parsed->tokens()[i].kind != Token::Kind::kParameter) continue;
    if (!parameters.insert(parsed->tokens()[i].index).second) {
      const std::string_view name = textOf(text, ranges[i]);
      return errorAt(text, ranges[i], fmt::format("{} occurs twice; give each constant a parameter of its own", name));
    }
  }
  const std::vector<ParameterBounds> read = readBounds(bounds, parameters);
  for (const Token& token : parsed->tokens()) {
    const auto kind = std::ranges::find_if(
        kinds, [&](const auto& one) { return token.kind == Token::Kind::kParameter && one.first == token.index; });
    for (const Token& part : kind == kinds.end() ? std::vector{token} : kind->second) {
      const bool is_parameter = part.kind == Token::Kind::kParameter;
      const ParameterBounds& own = form.bounds_.emplace_back(is_parameter ? read[token.index] : ParameterBounds{});
      form.tokens_.push_back(is_parameter ? Token::constant(std::clamp(1.0, own.lower, own.upper)) : part);
    }
  }
  if (bounds.empty()) form.bounds_.clear();
  return form;
}

bool Form::matches(std::span<const std::int32_t> codes, std::vector<Part>& parts) const {
  parts.resize(functions());
  std::size_t at = codes.size();
  for (auto token = tokens_.rbegin(); token != tokens_.rend(); ++token) {
    if (at == 0) return false;
    if (token->kind == Token::Kind::kVariable && token->index >= variables_) {
      const std::size_t begin = subtreeBegin(codes, at - 1);
      parts[token->index - variables_] = {begin, at};
      at = begin;
    } else if (codes[--at] != codeOf(*token)) {
      return false;
    }
  }
  return at == 0;
}

/// Calls use(token, columns) for each token of a function that is none of its columns.
template <class Use>
bool Form::forEachForeign(std::span<const std::int32_t> codes, const Use& use) const {
  thread_local std::vector<Part> parts;
  if (!matches(codes, parts)) return false;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    for (std::size_t i = parts[k].begin; i < parts[k].end; ++i) {
      const bool is_foreign =
          codes[i] < 0 && std::ranges::find(columns_[k], tokenOf(codes[i]).index) == columns_[k].end();
      if (is_foreign) use(i, columns_[k]);
    }
  }
  return true;
}

std::vector<ParameterBounds> Form::boundsOf(std::span<const std::int32_t> codes) const {
  std::vector<Part> parts;
  if (bounds_.empty() || !matches(codes, parts)) return {};
  std::vector<ParameterBounds> all(codes.size());
  std::size_t at = 0;
  for (std::size_t t = 0; t < tokens_.size(); ++t) {
    const bool is_function = tokens_[t].kind == Token::Kind::kVariable && tokens_[t].index >= variables_;
    if (is_function) {
      at = parts[tokens_[t].index - variables_].end;
    } else {
      all[at++] = bounds_[t];
    }
  }
  return all;
}

void Form::clamp(std::span<const std::int32_t> codes, std::span<double> constants) const {
  const std::vector<ParameterBounds> bounds = boundsOf(codes);
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    constants[i] = std::clamp(constants[i], bounds[i].lower, bounds[i].upper);
  }
}

bool Form::admits(const TreeView& tree) const {
  bool is_own = true;
  if (!forEachForeign(tree.codes, [&](auto&&...) { is_own = false; }) || !is_own) return false;
  const std::vector<ParameterBounds> bounds = boundsOf(tree.codes);
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    if (!(tree.constants[i] >= bounds[i].lower && tree.constants[i] <= bounds[i].upper)) return false;
  }
  return true;
}

bool Form::repair(std::span<std::int32_t> codes) const {
  return forEachForeign(codes, [&](std::size_t i, std::span<const std::uint32_t> columns) {
    codes[i] = variableCode(columns[tokenOf(codes[i]).index % columns.size()]);
  });
}

}  // namespace srjit::search
