#include "runtime/loss_text.h"

#include <algorithm>
#include <charconv>
#include <string>

#include <fmt/format.h>

#include "ir/text.h"
#include "ir/text/lexer.h"

namespace srjit {
namespace {

Result<LossOptions> withConstant(LossKind kind, std::string_view text, std::string_view number) {
  const std::size_t first = number.find_first_not_of(' ');
  number.remove_prefix(std::min(first, number.size()));
  number = number.substr(0, number.find_last_not_of(' ') + 1);
  double constant = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), constant);
  if (error != std::errc() || end != number.data() + number.size()) {
    return Error{Errc::kInvalid, fmt::format("{}: expected a number behind the colon", text::inQuotes(text)), {}};
  }
  return LossOptions{.kind = kind, .tuning = constant};
}

/// Whether a word of an expression is a variable or a parameter by its number: x0, p1 or x[0].
bool isIndexed(std::string_view word, std::string_view behind) {
  if (word.empty() || (word[0] != 'x' && word[0] != 'p')) return false;
  return word.size() == 1 ? behind.starts_with('[') : std::ranges::all_of(word.substr(1), text::isDigit);
}

/// A valid expression over f, y and w that has no other operands. Expressions of data may also write x0 for a column.
Status checkOperands(std::string_view expression) {
  for (std::size_t at = 0; at < expression.size(); ++at) {
    const std::string_view word = expression.substr(at, text::scanWord(expression, at));
    if (isIndexed(word, expression.substr(at + word.size()))) {
      return text::errorAt(expression, at, word.size(),
                           fmt::format("{} in a loss; expected f for the prediction, y for the target or w for the "
                                       "weight",
                                       text::inQuotes(word)));
    }
    at += word.size();
  }
  return okStatus();
}

}  // namespace

Result<LossOptions> parseLoss(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto known = std::ranges::find(allLosses(), name, &LossInfo::name);
  if (known != allLosses().end()) {
    if (colon == std::string_view::npos) return LossOptions{.kind = known->kind};
    return withConstant(known->kind, text, text.substr(colon + 1));
  }
  Result<Expression> custom = parse(text, Language::kInfix, {"f", "y", "w"});
  if (custom) {
    if (Status named = checkOperands(text); !named) return std::move(named).error();
    return LossOptions{.custom = std::move(*custom)};
  }
  if (text.find_first_of(" ()+*/^,") != std::string_view::npos) return custom.error();
  std::string names;
  for (const LossInfo& info : allLosses()) names += (names.empty() ? "" : ", ") + std::string(info.name);
  return Error{Errc::kInvalid,
               fmt::format("{} is none of {}, and no expression over f, y and w", text::inQuotes(name), names),
               {}};
}

}  // namespace srjit
